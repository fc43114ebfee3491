"""Rules at one node, over drawn distributions and every outcome, and the walk down a draft."""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoders.distribution import Warping, Whole, point_mass
from decoders.errors import InputError
from decoders.methods.block import Traversal
from decoders.methods.named import Match
from decoders.methods.rules import KSeq, MatchRule, MultiRound, Node, Pick, Tokenwise, walk
from decoders.methods.sources import (
    Draft,
    Drafting,
    Kind,
    Tree,
    said,
    tree,
    with_replacement,
    without_replacement,
)
from decoders.reading import Readings
from decoders.request import Draw
from decoders.testing.oracle import Branches, Watched, assert_exact, outcomes, ways
from decoders.testing.situations import WHOLE, Rows, Situation, drawn, variation
from decoders.theory import kseq_division
from decoders.trace import DRAFTED, Fate
from tests.pieces import FORMS, Made, at_one_node, distributions, reading, small


@st.composite
def pairs(draw):
    """p and q over one vocabulary, with zeros, and sometimes equal."""
    size = draw(st.integers(2, 6))
    each = st.sampled_from([0, 0, 1, 2, 3, 7, 0.01, 100])
    weights = st.lists(each, min_size=size, max_size=size).filter(any)
    p = torch.tensor(draw(weights), dtype=torch.float64)
    q = (
        p
        if draw(st.booleans()) and draw(st.booleans())
        else torch.tensor(draw(weights), dtype=torch.float64)
    )
    return p / p.sum(), q / q.sum()


def judged(rule, p, q, certain=None):
    """The law of the token that comes out, and the chance that it is the drafted one.

    The same in any mixture of forms."""
    q = p if q is None else q
    found = [
        _judged(rule, P(p), Q(q), reading(p), certain)
        for P in FORMS.values()
        for Q in FORMS.values()
    ]
    for law, kept in found[1:]:
        assert variation(law, found[0][0]) < 1e-12
        assert kept == pytest.approx(found[0][1], abs=1e-12)
    return found[0]


def _judged(rule, p, q, target, certain):
    def run(source):
        token = source.draw(q)[0] if certain is None else certain
        pick = rule.pick(Node(p, None if certain is not None else q, [token], target), source)
        return (token, True) if pick.accepted else (source.draw(pick.rest)[0], False)

    law, kept = Counter(), 0.0
    for probability, (token, was_kept) in outcomes(run):
        law[token] += probability
        kept += probability * was_kept
    return law, kept


@given(pairs())
def test_the_token_has_the_law_p_and_is_accepted_with_sum_min(pq):
    p, q = pq
    law, kept = judged(Tokenwise(), p, q)
    assert variation(law, dict(enumerate(p.tolist()))) < 1e-12
    assert kept == pytest.approx(torch.minimum(p, q).sum().item(), abs=1e-12)


@given(pairs(), st.integers(0, 1))
def test_a_certain_draft_is_accepted_with_p_of_it(pq, token):
    p, _ = pq
    law, kept = judged(Tokenwise(), p, None, certain=token)
    assert variation(law, dict(enumerate(p.tolist()))) < 1e-12
    assert kept == pytest.approx(p[token].item(), abs=1e-12)


@given(pairs(), st.floats(0.05, 0.95))
def test_lenience_has_the_law_of_appendix_a5(pq, lenience):
    """min(q, p/l) is kept, the rest is drawn from norm(max(0, p - l q))."""
    p, q = (x.numpy() for x in pq)
    kept = np.minimum(q, p / lenience)
    rest = np.maximum(0, p - lenience * q)
    expected = kept + (1 - kept.sum()) * (rest / rest.sum() if rest.sum() > 0 else p)
    law, _ = judged(Tokenwise(lenience), *pq)
    assert variation(law, dict(enumerate(expected))) < 1e-12


def accepts_at_temperature_0(rule, probs, token, lenience=0.5):
    probs = torch.tensor(probs, dtype=torch.float64)
    p, q = point_mass(int(probs.argmax())), point_mass(token)
    node = Node(p, q, [token], reading(probs), greedy=True)
    (outcome,) = outcomes(lambda source: rule(lenience).pick(node, source))
    return outcome[1]


LENIENT = [
    ([0.5, 0.3, 0.2], 1, True),
    ([0.5, 0.2, 0.3], 1, False),
    ([0.58, 0.3, 0.12], 1, True),
    ([0.5, 0.3, 0.2], 0, True),
]


@pytest.mark.parametrize(("probs", "token", "accepted"), LENIENT)
def test_lenience_at_temperature_0_accepts_what_is_nearly_the_likeliest(probs, token, accepted):
    pick = accepts_at_temperature_0(Tokenwise, probs, token)
    assert pick.accepted is accepted
    if not accepted:
        assert pick.rest.mass == {0: 1}


CASES = [(seed, k) for seed in range(6) for k in (1, 2, 3)] + [(7, 4), (8, 4)]


def division(p: torch.Tensor, q: torch.Tensor, k: int) -> float:
    return kseq_division(small(p), small(q), k)


def acceptance(p: torch.Tensor, q: torch.Tensor, k: int) -> float:
    """The chance 1 - (1-beta)^k that one of k i.i.d. drafts is accepted at one position."""
    beta = torch.minimum(q, p / division(p, q, k)).sum().item()
    return 1 - (1 - beta) ** k


@pytest.mark.parametrize(("seed", "k"), CASES)
def test_the_token_that_comes_out_of_k_seq_has_the_targets_law(seed, k):
    p, q = distributions(seed)
    law, accepted = at_one_node(KSeq(), p, q, k)
    torch.testing.assert_close(law, p, atol=1e-12, rtol=0)
    assert accepted == pytest.approx(acceptance(p, q, k), abs=1e-12)


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


class Keep:
    """Keeps the named token wherever it was drawn, after testing those before it."""

    def __init__(self, token):
        self.token = token

    def pick(self, node, source):
        tokens = node.tokens
        at = tokens.index(self.token) if self.token in tokens else len(tokens) - 1
        kept = tokens[at] == self.token
        return Pick([(0.1, 0.2, 0.5, 0.0)] * (at + 1), kept, None if kept else node.p)


def walked(edges, rule, end=frozenset()):
    """`edges`: (index of the parent's draw or -1 for the root, token), drawn in this order."""
    request = Watched([0], source=Branches(), warping=WHOLE, budget=20, end_tokens=end)
    draft, nodes = Draft(request.tip), []
    for parent, token in edges:
        above = draft.root if parent < 0 else nodes[parent]
        nodes.append(request.tree.add(above, token))
        draft.draws.append(Draw(nodes[-1], above, token))
    logits = torch.zeros(len(draft.nodes), 4, dtype=torch.float64)
    trials, tip = walk(request, draft, Readings(logits, 4), rule)
    assert sum(t.fate in DRAFTED for t in trials) == len(edges)
    return [(t.token, t.fate) for t in trials], request.path(tip)


def test_the_children_before_the_kept_one_are_rejected_and_those_behind_it_discarded():
    trials, path = walked([(-1, 2), (-1, 1), (-1, 3), (1, 1), (0, 1)], Keep(1))
    assert trials == [
        (2, Fate.REJECTED), (1, Fate.ACCEPTED), (3, Fate.DISCARDED), (1, Fate.ACCEPTED),
        (1, Fate.DISCARDED), (0, Fate.BONUS),
    ]  # fmt: skip
    assert path == (0, 1, 1, 0)


END = frozenset({2})
SITUATIONS = [
    drawn(2, 1),
    drawn(3, 2, budget=2),
    drawn(3, 3, warping=Warping(0.7, 2), end=END),
    drawn(2, 4, budget=4, warping=Warping(0.8, 0, 0.9)),
]


def likeliest(source, q, count):
    return sorted((x for x, _ in q.items()), key=lambda x: -q[x])[:count]


@dataclass(frozen=True)
class Chosen(Tree):
    """The draft model's likeliest tokens, as EAGLE-2's trees have them."""

    name = "chosen"
    kind = Kind.CHOSEN

    def start(self, request):
        return Drafting(partial(tree, expansion=self.expansion, sample=likeliest), said)


@pytest.mark.parametrize("situation", SITUATIONS, ids=range(len(SITUATIONS)))
def test_it_is_exact_on_chosen_children(situation):
    assert_exact(Made(Chosen((2, 1)), MatchRule()), situation)


@pytest.mark.parametrize("rule", [MultiRound(), Traversal()], ids=["multiround", "traversal"])
def test_p_over_q_on_chosen_children_is_refused(rule):
    with pytest.raises(InputError, match="cannot judge the draft chosen, a tree of chosen tokens"):
        Made(Chosen((2,)), rule)


def test_a_token_is_kept_with_chance_sum_p_q():
    p, q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
    situation = Situation(Rows((p,)), Rows((q,)), budget=2)
    kept = sum(w * r.rounds[0].accepted for w, r in ways(Match(draft_length=1), situation))
    assert kept == pytest.approx(sum(a * b for a, b in zip(p, q, strict=True)))


def test_nothing_follows_a_kept_end_token():
    trials, path = walked([(-1, 1)], Keep(1), end=frozenset({1}))
    assert (trials, path) == ([(1, Fate.ACCEPTED)], (0, 1))
