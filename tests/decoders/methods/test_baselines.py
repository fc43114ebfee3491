"""The baselines: sampling and beam sampling against their enumerated laws, beam search against
exhaustive search."""

import itertools
from unittest import mock

import pytest
import torch

from decoders.distribution import Warping
from decoders.methods.baselines import BeamSampling, BeamSearch, Greedy, Multinomial
from decoders.randomness import SeededSource
from decoders.testing.oracle import (
    assert_exact,
    decode,
    layers,
    output_law,
    ways,
)
from decoders.testing.situations import Rows, Situation, drawn, log_likelihood
from decoders.trace import Fate
from tests.pieces import last_of_equals


@pytest.mark.parametrize("end", [frozenset(), frozenset({2})], ids=["no end", "end"])
@pytest.mark.parametrize(
    ("beams", "warping"),
    [(1, Warping()), (2, Warping(0.7, 3, 0.9)), (2, Warping(1.3, 4)), (3, Warping(1.0, 2))],
    ids=repr,
)
@pytest.mark.parametrize("law", ["beam sampling", "beam sampling per layer"])
def test_beam_sampling_has_its_law(beams, warping, end, law):
    assert_exact(BeamSampling(beams), drawn(3, 2, warping=warping, end=end), law=law)


def test_beam_sampling_has_its_law_on_whole_distributions():
    assert_exact(BeamSampling(2), drawn(3, 3, budget=2))
    assert_exact(BeamSampling(2), drawn(2, 3))


def test_one_beam_is_multinomial_sampling():
    assert_exact(BeamSampling(1), drawn(3, 4, warping=Warping(0.8, 0, 0.9)), law="target")


def test_copies_of_a_beam_have_entries_of_their_own():
    """Top-k 2 over three copies of a beam lets two copies of one token through, not two tokens."""
    situation = drawn(3, 2, budget=2, warping=Warping(1.0, 2))
    alike = [r for _, r in ways(BeamSampling(3), situation) if len(set(list(layers(r))[1][0])) == 1]
    assert {len(set(list(layers(r))[1][1])) for r in alike} == {1}


# ---- Beam search


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("end", [frozenset(), frozenset({1})], ids=["no end", "end"])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_search_wide_enough_is_exhaustive(seed, end, penalty):
    situation = drawn(3, seed, budget=3, end=end)
    texts = {
        next((t[: i + 1] for i, x in enumerate(t) if x in end), t)
        for t in itertools.product(range(3), repeat=situation.budget)
    }
    best = max(
        texts, key=lambda t: log_likelihood(situation, situation.prompt + t) / len(t) ** penalty
    )
    method = BeamSearch(27, length_penalty=penalty, early_stopping="never")
    assert list(output_law(method, situation)) == [best]


def test_one_beam_is_greedy_whatever_the_warping():
    assert_exact(BeamSearch(1), drawn(4, 1, budget=6, warping=Warping(0.0)), law="target")
    assert output_law(BeamSearch(1), drawn(4, 1)) == output_law(
        BeamSearch(1), drawn(4, 1, warping=Warping(2.0, 1))
    )


def test_equal_scores_are_in_the_order_of_their_tokens():
    """`torch.topk` takes any of equal logits, on CUDA others than on a CPU."""
    flat = Situation(Rows(((0.1,) * 10,)), Rows(((0.1,) * 10,)), budget=2)
    with mock.patch.object(torch.Tensor, "topk", last_of_equals):
        r = decode(BeamSearch(3), flat, SeededSource(0))
    assert r.output == (0, 0)
    assert sorted(t.token for t in r.rounds[0].trials) == [0, 1, 2]


def test_the_answer_so_far_is_provisional_and_what_stands_is_told():
    for seed in range(10):
        r = decode(BeamSearch(3), drawn(3, seed, budget=5), SeededSource(0))
        text = []
        for entry in r.rounds:
            text = text[: entry.keep] + entry.tokens
            assert entry.provisional == (entry is not r.rounds[-1])
            assert all(t.fate == Fate.SEARCHED and t.log_p is not None for t in entry.trials)
        assert tuple(text) == r.output


@pytest.mark.parametrize("warping", [Warping(), Warping(0.5, 2), Warping(2.0, 0, 0.7)])
@pytest.mark.parametrize("end", [frozenset(), frozenset({0})])
def test_multinomial_sampling_is_ancestral_sampling(warping, end):
    assert_exact(Multinomial(), drawn(3, 1, warping=warping, end=end))


def test_greedy_takes_the_likeliest_whatever_the_caller_warps_with_ties_to_the_lowest_id():
    situation = Situation(
        Rows(((0.2, 0.3, 0.5), (0.25, 0.375, 0.375))), None, warping=Warping(1.7, 3, 0.9)
    )
    assert output_law(Greedy(), situation) == {(2, 1, 1): 1}


def test_each_token_is_a_round_of_one_sample():
    r = decode(Multinomial(), drawn(3), SeededSource(1))
    assert [(e.drafted, e.target_calls, e.draft_calls, e.tokens) for e in r.rounds] == [
        (0, 1, 0, [t]) for t in r.output
    ]
    assert all(t.fate == Fate.SAMPLED for e in r.rounds for t in e.trials)
