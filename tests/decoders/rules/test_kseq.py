import itertools
import math

import pytest
import torch

from decoders.distribution import Whole
from decoders.methods.rules import KSeq, Node, Tokenwise
from decoders.randomness import SeededSource
from decoders.testing import mutant
from decoders.testing.oracle import Source
from decoders.theory import kseq_division
from tests.pieces import at_one_node, distributions, reading, small

CASES = [(seed, k) for seed in range(6) for k in (1, 2, 3)] + [(7, 4), (8, 4)]


def division(p: torch.Tensor, q: torch.Tensor, k: int) -> float:
    return kseq_division(small(p), small(q), k)


def acceptance(p: torch.Tensor, q: torch.Tensor, k: int) -> float:
    """The chance 1 - (1-beta)^k that one of k i.i.d. drafts is accepted at one position."""
    beta = torch.minimum(q, p / division(p, q, k)).sum().item()
    return 1 - (1 - beta) ** k


def optimum(p: torch.Tensor, q: torch.Tensor, k: int) -> float:
    """The best acceptance of any rule with k i.i.d. drafts.

    It is the least of p(A) + 1 - q(A)^k over all sets A of tokens."""
    sets = itertools.product([False, True], repeat=len(p))
    return min((p[A].sum() + 1 - q[A].sum() ** k).item() for A in map(torch.tensor, sets))


@pytest.mark.parametrize(("seed", "k"), CASES)
def test_the_token_that_comes_out_has_the_targets_law(seed, k):
    p, q = distributions(seed)
    law, accepted = at_one_node(KSeq(), p, q, k)
    torch.testing.assert_close(law, p, atol=1e-12, rtol=0)
    assert accepted == pytest.approx(acceptance(p, q, k), abs=1e-12)


@pytest.mark.parametrize(("seed", "k"), CASES)
def test_acceptance_is_at_least_1_minus_1_over_e_of_the_optimum(seed, k):
    p, q = distributions(seed, V=6)
    best = optimum(p, q, k)
    assert (1 - 1 / math.e) * best <= acceptance(p, q, k) <= best + 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_one_draft_is_speculative_decoding(seed):
    p, q = distributions(seed)
    fates = []
    for token in q.nonzero().flatten().tolist():
        rules = KSeq(), Tokenwise()
        ours, plain = (
            rule.pick(Node(small(p), small(q), [token], reading(p)), SeededSource(seed))
            for rule in rules
        )
        assert (ours.tests, ours.kept) == (plain.tests, plain.kept)
        if not ours.kept:
            assert ours.rest.mass == pytest.approx(plain.rest.mass)
        fates.append(ours.kept)
    assert set(fates) == {True, False}


@pytest.mark.parametrize(("seed", "k"), CASES)
def test_the_division_is_a_root_rounded_up(seed, k):
    p, q = distributions(seed)
    rho = division(p, q, k)
    assert rho == kseq_division(Whole(p), Whole(q), k)

    def excess(rho):
        beta = torch.minimum(q, p / rho).sum().item()
        return 1 - (1 - beta) ** k - rho * beta

    assert 1 <= rho <= k
    assert excess(rho) <= 1e-15  # at or above the root: no residual is negative
    assert rho == 1 or excess(rho - 1e-9) >= 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("change", [0.0, 1e-6, 1e-3])
def test_where_p_is_nearly_q_sure_tokens_are_kept(dtype, change):
    """Rounding of the sum of p was taken for a rest.

    At k = 16 the division was 1.115 for p = q, and up to 1.6 in float32, so that a draft was
    refused with a chance of 0.1 to 0.4."""
    draw = torch.Generator().manual_seed(3)
    q = torch.rand(50, generator=draw, dtype=torch.float64).softmax(-1)
    p = q * (1 + change * torch.linspace(-1, 1, 50))
    p, q = (each.div(each.sum()).to(dtype) for each in (p, q))
    highest = (p.double() / q.double()).max().item()
    for form in (small, Whole):
        assert 1 <= kseq_division(form(p), form(q), 16) <= max(1.0, highest) + 1e-15


def test_drafts_that_the_target_never_writes_leave_the_target_whole():
    p, q = torch.tensor([[0.6, 0.4, 0, 0], [0, 0, 0.5, 0.5]], dtype=torch.float64)
    pick = KSeq().pick(Node(small(p), small(q), [2, 3], reading(p)), Source())
    assert not pick.kept
    assert pick.rest.mass == small(p).mass


@pytest.mark.parametrize(
    "edit",
    [
        ("rho = kseq_division(p, q, len(tokens))", "rho = 1.0"),
        ("scale * overlap", "overlap"),
        ("/ (rho * q_token)", "/ q_token"),
    ],
)
def test_the_check_fails_a_biased_rule(edit):
    p, q = distributions(3)
    law, _ = at_one_node(mutant(KSeq, edit)(), p, q, 3)
    assert (law - p).abs().sum() > 1e-3
