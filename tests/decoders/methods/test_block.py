"""Block verification, on trees and on the best of several paths."""

import pytest

from decoders.distribution import Warping
from decoders.methods.block import Block, MultiPath, Traversal
from decoders.methods.named import (
    SOURCES,
    BlockVerification,
    MultiPathBlock,
    SpecInfer,
    Speculative,
    TraversalVerification,
    part,
)
from decoders.methods.sources import Chain, Paths
from decoders.randomness import SeededSource
from decoders.testing import mutant
from decoders.testing.oracle import assert_exact, decode, distance, ways
from decoders.testing.situations import drawn
from tests.pieces import Made


@pytest.mark.parametrize("end", [frozenset(), frozenset({2})], ids=["no end", "end"])
@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2, 0.9), Warping(0)], ids=repr)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_it_has_the_targets_law(length, warping, end):
    assert_exact(
        BlockVerification(length), drawn(3, 4, budget=3, warping=warping, end=end), limit=100_000
    )


def first_round(method, situation) -> float:
    """Tokens that the first round gains, in the mean."""
    return sum(
        probability * len(r.rounds[0].tokens)
        for probability, r in ways(method, situation, limit=200_000)
    )


@pytest.mark.parametrize("seed", range(4))
def test_its_rounds_gain_more_than_those_of_speculative_decoding(seed):
    situation = drawn(2, seed, budget=4)
    ours, theirs = (
        first_round(BlockVerification(3), situation),
        first_round(Speculative(3), situation),
    )
    assert ours > theirs


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("min(1.0, a * ", "max(0.0, a * "),
        ("left / (left + 1 - a)", "left / (left + 1)"),
        ("residual(a * p, q)", "residual(p, q)"),
    ],
)
def test_a_mistake_in_it_is_seen(right, wrong):
    method = Made(Chain(2), mutant(Block, (right, wrong))())
    assert distance(method, drawn(3, 4), limit=100_000) > 1e-4


def test_a_single_token_is_judged_as_speculative_decoding_judges_it():
    situation = drawn(3, 5, budget=2)
    assert first_round(BlockVerification(1), situation) == pytest.approx(
        first_round(Speculative(1), situation), abs=1e-12
    )


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
def test_a_mistake_on_trees_is_found(right, wrong):
    method = Made(part(SOURCES, "", "distinct(expansion=2,2)"), mutant(Traversal, (right, wrong))())
    try:
        assert distance(method, drawn(3, 4, warping=Warping(0.8, 2)), limit=60_000) > 1e-4
    except (AssertionError, TypeError, ZeroDivisionError):
        return  # what it draws from is no distribution


SITUATIONS = [
    drawn(2, 1),
    drawn(3, 3, warping=Warping(0.7, 2), end=frozenset({2})),
    drawn(3, 4, budget=2),
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("situation", SITUATIONS, ids=range(len(SITUATIONS)))
@pytest.mark.parametrize(("drafts", "length"), [(1, 2), (2, 2), (3, 1), (3, 2)])
def test_the_best_path_has_the_targets_law(drafts, length, situation, whole):
    assert_exact(MultiPathBlock(drafts, length), situation, limit=20_000, whole=whole)


def kept_of_paths(method, situation) -> float:
    """Draft tokens that the first round keeps, in the mean."""
    return sum(chance * r.rounds[0].accepted for chance, r in ways(method, situation))


def test_more_paths_keep_more_than_one():
    situation = SITUATIONS[0]
    one = kept_of_paths(BlockVerification(2), situation)
    assert kept_of_paths(MultiPathBlock(1, 2), situation) == pytest.approx(one)
    assert kept_of_paths(MultiPathBlock(2, 2), situation) > one


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("best.q[node] = order.reweighted(drafts, below, own)", "best.q[node] = q"),
        ("below, own, node = (below + own * lower) / top,", "below, own, node = 0 * top,"),
        ("total * b + power, power * a", "total * a + power, power * a"),
    ],
)
def test_a_mistake_in_the_best_path_is_found(right, wrong):
    method = Made(Paths(3, 2), mutant(MultiPath, (right, wrong))())
    assert distance(method, SITUATIONS[0]) > 1e-4
