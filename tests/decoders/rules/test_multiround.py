import pytest
import torch

from decoders.methods.rules import MultiRound
from decoders.methods.sources import with_replacement, without_replacement
from decoders.testing import mutant
from tests.pieces import at_one_node, distributions

P, Q = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.4, 0.3]], dtype=torch.float64)
# How the children were drawn, and whether the rule knows that they are distinct.
SPECINFER, MCSS = (with_replacement, False), (without_replacement, True)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("how", [SPECINFER, MCSS], ids=["specinfer", "mcss"])
def test_the_token_that_comes_out_has_the_targets_law(how, seed, k):
    """With replacement, equal children come up and are tried as often as they were drawn.

    Without, k may exceed the support."""
    p, q = distributions(seed, V=4 if k < 4 else 3)
    law, _ = at_one_node(MultiRound(), p, q, k, *how)
    torch.testing.assert_close(law, p, atol=1e-12, rtol=0)


@pytest.mark.parametrize("seed", range(8))
def test_without_replacement_the_whole_support_accepts_always(seed):
    p, q = distributions(seed)
    p = p * (q > 0)
    _, accepted = at_one_node(MultiRound(), p / p.sum(), q, int((q > 0).sum()), *MCSS)
    assert accepted == pytest.approx(1, abs=1e-12)


def test_with_replacement_it_does_not():
    assert at_one_node(MultiRound(), P, Q, 4)[1] < 0.99


def top_children(source, q, count):
    """Some implementations: the likeliest tokens, not draws, yet judged against q."""
    return sorted((x for x, _ in q.items()), key=lambda x: -q[x])[:count]


@pytest.mark.parametrize(
    ("sample", "distinct"),
    [(top_children, False), (top_children, True), (without_replacement, False)],
)
def test_a_rule_fails_with_children_that_were_drawn_otherwise(sample, distinct):
    law, _ = at_one_node(MultiRound(), P, Q, 3, sample, distinct)
    assert (law - P).abs().sum() > 1e-3


@pytest.mark.parametrize(
    "edit",
    [
        ("residual(rest, q)", "residual(p, q)"),
        ("p_token, q_token = rest[token]", "p_token, q_token = p[token]"),
        ("p_token / q_token", "q_token / max(p_token, 1e-9)"),
    ],
)
def test_the_check_fails_a_biased_rule(edit):
    law, _ = at_one_node(mutant(MultiRound, edit)(), P, Q, 3)
    assert (law - P).abs().sum() > 1e-3


def test_equal_distributions_accept_the_first_child():
    p, _ = distributions(0)
    for how in (SPECINFER, MCSS):
        assert at_one_node(MultiRound(), p, p, 2, *how)[1] == pytest.approx(1, abs=1e-15)
