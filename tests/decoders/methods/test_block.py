"""Block verification, on trees and on the best of several paths."""

import pytest

from decoders.distribution import Warping
from decoders.methods.named import (
    BlockVerification,
    MultiPathBlock,
    SpecInfer,
    TraversalVerification,
)
from decoders.testing.oracle import assert_exact, ways
from decoders.testing.situations import drawn
from tests.pairwise import pairwise


@pytest.mark.parametrize(("length", "warping", "end"), pairwise(
    [1, 2, 3], [Warping(), Warping(0.7, 2, 0.9), Warping(0)], [frozenset(), frozenset({2})]
), ids=repr)  # fmt: skip
def test_it_has_the_targets_law(length, warping, end):
    situation = drawn(3, 4, budget=3, warping=warping, end=end)
    assert_exact(BlockVerification(length), situation, limit=100_000)


END = frozenset({2})


@pytest.mark.parametrize("draft", ["tree", "distinct"])
@pytest.mark.parametrize(("expansion", "situation"), [
    ("2,1", drawn(2, 1)),
    ("2,2", drawn(2, 3)),
    ("3", drawn(3, 4, budget=2)),
    ("3,1", drawn(3, 6, warping=Warping(0.7, 2), end=END)),
    ("2,1,1", drawn(2, 7, budget=4, warping=Warping(0.8, 0, 0.9))),
])  # fmt: skip
def test_it_has_the_targets_law_on_trees(draft, expansion, situation):
    assert_exact(TraversalVerification(expansion, draft), situation, limit=60_000)


def kept(method, situation) -> float:
    """Draft tokens that the first round keeps, in the mean."""
    return sum(chance * r.rounds[0].accepted for chance, r in ways(method, situation, limit=60_000))


@pytest.mark.parametrize("seed", range(3))
def test_it_keeps_more_of_a_tree_than_its_nodes_judged_one_by_one(seed):
    situation = drawn(2, seed, budget=3)
    assert kept(TraversalVerification("2,1"), situation) > kept(SpecInfer("2,1"), situation)


SITUATIONS = [
    drawn(2, 1),
    drawn(3, 3, warping=Warping(0.7, 2), end=frozenset({2})),
    drawn(3, 4, budget=2),
]


@pytest.mark.parametrize(("situation", "drafts", "length", "whole"), [
    (SITUATIONS[0], 3, 2, False), (SITUATIONS[0], 2, 2, True), (SITUATIONS[1], 2, 2, False),
    (SITUATIONS[1], 1, 2, True), (SITUATIONS[2], 3, 1, False),
], ids=range(5))  # fmt: skip
def test_the_best_path_has_the_targets_law(drafts, length, situation, whole):
    assert_exact(MultiPathBlock(drafts, length), situation, limit=20_000, whole=whole)


def test_more_paths_keep_more_than_one():
    situation = SITUATIONS[0]
    one = kept(BlockVerification(2), situation)
    assert kept(MultiPathBlock(1, 2), situation) == pytest.approx(one)
    assert kept(MultiPathBlock(2, 2), situation) > one
