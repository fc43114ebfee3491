"""The baselines: sampling and beam sampling against their enumerated laws, beam search against
exhaustive search."""

import itertools
from unittest import mock

import pytest
import torch

from decoders.distribution import Warping
from decoders.methods.baselines import BeamSampling, BeamSearch, Greedy, Multinomial
from decoders.request import SeededSource
from decoders.testing.oracle import assert_exact, decode, layers, output_law, ways
from decoders.testing.situations import Rows, Situation, drawn, log_likelihood
from tests.pieces import last_of_equals


def test_copies_of_a_beam_have_entries_of_their_own():
    """Top-k 2 over three copies of a beam lets two copies of one token through, not two tokens."""
    situation = drawn(3, 2, budget=2, warping=Warping(1.0, 2))
    alike = [r for _, r in ways(BeamSampling(3), situation) if len(set(list(layers(r))[1][0])) == 1]
    assert {len(set(list(layers(r))[1][1])) for r in alike} == {1}


@pytest.mark.parametrize(
    ("seed", "end", "penalty"),
    [(0, frozenset(), 1.0), (1, frozenset({1}), 0.0), (2, frozenset({1}), 2.0)],
)
def test_a_beam_search_wide_enough_is_exhaustive(seed, end, penalty):
    situation = drawn(3, seed, budget=3, end=end)
    texts = {
        next((t[: i + 1] for i, x in enumerate(t) if x in end), t)
        for t in itertools.product(range(3), repeat=situation.budget)
    }
    start = situation.prompt
    best = max(texts, key=lambda t: log_likelihood(situation, start + t) / len(t) ** penalty)
    method = BeamSearch(27, length_penalty=penalty, early_stopping="never")
    assert list(output_law(method, situation)) == [best]


def test_equal_scores_are_in_the_order_of_their_tokens():
    """`torch.topk` takes any of equal logits, on CUDA others than on a CPU."""
    flat = Situation(Rows(((0.1,) * 10,)), Rows(((0.1,) * 10,)), budget=2)
    with mock.patch.object(torch.Tensor, "topk", last_of_equals):
        r = decode(BeamSearch(3), flat, SeededSource(0))
    assert r.output == (0, 0)
    assert sorted(t.token for t in r.rounds[0].trials) == [0, 1, 2]


@pytest.mark.parametrize(
    ("warping", "end"), [(Warping(), frozenset({0})), (Warping(2.0, 0, 0.7), frozenset())]
)
def test_multinomial_sampling_is_ancestral_sampling(warping, end):
    assert_exact(Multinomial(), drawn(3, 1, warping=warping, end=end))


def test_greedy_takes_the_likeliest_whatever_the_caller_warps_with_ties_to_the_lowest_id():
    rows = Rows(((0.2, 0.3, 0.5), (0.25, 0.375, 0.375)))
    situation = Situation(rows, None, warping=Warping(1.7, 3, 0.9))
    assert output_law(Greedy(), situation) == {(2, 1, 1): 1}
