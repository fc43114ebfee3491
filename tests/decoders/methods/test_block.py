"""Block verification: the target's law, and never fewer tokens per round than testing token by
token."""

import pytest

from decoders.distribution import Warping
from decoders.methods.block import Block
from decoders.methods.named import BlockVerification, Speculative
from decoders.methods.sources import Chain
from decoders.testing import mutant
from decoders.testing.oracle import assert_exact, distance, ways
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
