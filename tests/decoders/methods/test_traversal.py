"""Traversal verification: the target's law on every drawn tree, and more tokens kept."""

import pytest

from decoders.distribution import Warping
from decoders.methods.block import Traversal
from decoders.methods.named import (
    SOURCES,
    BlockVerification,
    SpecInfer,
    Speculative,
    TraversalVerification,
    part,
)
from decoders.randomness import SeededSource
from decoders.testing import mutant
from decoders.testing.oracle import assert_exact, decode, distance, ways
from decoders.testing.situations import drawn
from tests.pieces import Made

END = frozenset({2})


@pytest.mark.parametrize("draft", ["tree", "distinct"])
@pytest.mark.parametrize(
    ("expansion", "situation"),
    [
        ("2,1", drawn(2, 1)),
        ("1,2", drawn(2, 2)),
        ("2,2", drawn(2, 3)),
        ("3", drawn(3, 4, budget=2)),
        ("2", drawn(3, 5, warping=Warping(0.7, 2))),
        ("3,1", drawn(3, 6, warping=Warping(0.7, 2), end=END)),
        ("2,1,1", drawn(2, 7, budget=4, warping=Warping(0.8, 0, 0.9))),
        ("2", drawn(3, 8, budget=2, end=END)),
    ],
)
def test_it_has_the_targets_law_on_trees(draft, expansion, situation):
    assert_exact(TraversalVerification(expansion, draft), situation, limit=60_000)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_on_a_chain_it_is_block_verification(length):
    for seed in range(4):
        situation = drawn(4, seed, budget=12)
        one, other = (
            decode(m, situation, SeededSource(seed))
            for m in (
                BlockVerification(length),
                Speculative(length, rule="traversal"),
            )
        )
        assert one.output == other.output
        assert [r.trials for r in one.rounds] == [r.trials for r in other.rounds]


def kept(method, situation) -> float:
    """Draft tokens that the first round keeps, in the mean."""
    return sum(chance * r.rounds[0].accepted for chance, r in ways(method, situation, limit=60_000))


@pytest.mark.parametrize("seed", range(3))
def test_it_keeps_more_of_a_tree_than_its_nodes_judged_one_by_one(seed):
    situation = drawn(2, seed, budget=3)
    assert kept(TraversalVerification("2,1"), situation) > kept(SpecInfer("2,1"), situation)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("left / (left + 1 - a)", "left / q.total"),  # a public implementation
        ("left / (left + 1 - a)", "left / q.without(child.token).total if q.mass else 0.0"),
        ("if self.draft.distinct:", "if False:"),
        ("p = residual(a * p, q)", "p = residual(p, q)"),
        ("            if own:\n", "            if True:\n"),
    ],
)
def test_a_mistake_in_it_is_seen(right, wrong):
    method = Made(part(SOURCES, "", "distinct(expansion=2,2)"), mutant(Traversal, (right, wrong))())
    try:
        assert distance(method, drawn(3, 4, warping=Warping(0.8, 2)), limit=60_000) > 1e-4
    except (AssertionError, TypeError, ZeroDivisionError):
        return  # what it draws from is no distribution
