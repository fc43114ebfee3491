"""The rule match: exact for any draft, also one that was chosen, where p / q is not."""

from dataclasses import dataclass
from functools import partial

import pytest

from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.block import Traversal
from decoders.methods.named import Match
from decoders.methods.rules import MatchRule, MultiRound
from decoders.methods.sources import Drafting, Kind, Tree, said, tree
from decoders.testing import mutant
from decoders.testing.oracle import assert_exact, distance, ways
from decoders.testing.situations import Rows, Situation, drawn
from tests.pieces import Made

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


@dataclass(frozen=True)
class SaidToBeDrawn(Chosen):
    kind = Kind.TREE


@pytest.mark.parametrize("situation", SITUATIONS, ids=range(len(SITUATIONS)))
@pytest.mark.parametrize(
    "draft",
    ["model(draft_length=2)", "tree(expansion=2,1)", "distinct(expansion=2,1)", "ngram", "lookup",
     "paths(drafts=2, draft_length=2)"],
)  # fmt: skip
def test_it_has_the_targets_law_whatever_the_draft(draft, situation):
    assert_exact(Match(draft=draft), situation, limit=60_000)


@pytest.mark.parametrize("situation", SITUATIONS, ids=range(len(SITUATIONS)))
def test_it_is_exact_on_chosen_children(situation):
    assert_exact(Made(Chosen((2, 1)), MatchRule()), situation)


@pytest.mark.parametrize("rule", [MultiRound(), Traversal()], ids=["multiround", "traversal"])
def test_p_over_q_on_chosen_children_is_refuted_and_refused(rule):
    assert distance(Made(SaidToBeDrawn((2,)), rule), SITUATIONS[1]) > 0.01
    with pytest.raises(InputError, match="cannot judge the draft chosen, a tree of chosen tokens"):
        Made(Chosen((2,)), rule)


def test_a_token_is_kept_with_chance_sum_p_q():
    p, q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
    situation = Situation(Rows((p,)), Rows((q,)), budget=2)
    kept = sum(w * r.rounds[0].accepted for w, r in ways(Match(draft_length=1), situation))
    assert kept == pytest.approx(sum(a * b for a, b in zip(p, q, strict=True)))


def test_a_correction_drawn_anew_is_refuted():
    wrong = mutant(MatchRule, ("rest=point_mass(y)", "rest=p"))
    assert distance(Made(Tree((2,)), wrong()), SITUATIONS[1]) > 0.01
