"""Greedy multi-path block verification: the target's law, and more of the drafts kept."""

import pytest

from decoders.distribution import Warping
from decoders.methods.block import MultiPath
from decoders.methods.named import BlockVerification, MultiPathBlock
from decoders.methods.sources import Paths
from decoders.testing import mutant
from decoders.testing.oracle import assert_exact, distance, ways
from decoders.testing.situations import drawn
from tests.pieces import Made

SITUATIONS = [
    drawn(2, 1),
    drawn(3, 3, warping=Warping(0.7, 2), end=frozenset({2})),
    drawn(3, 4, budget=2),
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("situation", SITUATIONS, ids=range(len(SITUATIONS)))
@pytest.mark.parametrize(("drafts", "length"), [(1, 2), (2, 2), (3, 1), (3, 2)])
def test_it_has_the_targets_law(drafts, length, situation, whole):
    assert_exact(MultiPathBlock(drafts, length), situation, limit=20_000, whole=whole)


def kept(method, situation) -> float:
    """Draft tokens that the first round keeps, in the mean."""
    return sum(chance * r.rounds[0].accepted for chance, r in ways(method, situation))


def test_more_paths_keep_more_than_one():
    situation = SITUATIONS[0]
    one = kept(BlockVerification(2), situation)
    assert kept(MultiPathBlock(1, 2), situation) == pytest.approx(one)
    assert kept(MultiPathBlock(2, 2), situation) > one


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("best.q[node] = order.reweighted(drafts, below, own)", "best.q[node] = q"),
        ("below, own, node = (below + own * lower) / top,", "below, own, node = 0 * top,"),
        ("total * b + power, power * a", "total * a + power, power * a"),
    ],
)
def test_a_mistake_in_it_is_seen(right, wrong):
    method = Made(Paths(3, 2), mutant(MultiPath, (right, wrong))())
    assert distance(method, SITUATIONS[0]) > 1e-4
