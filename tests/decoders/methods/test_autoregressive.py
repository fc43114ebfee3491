"""The baselines."""

import pytest

from decoders.methods.autoregressive import Greedy, Multinomial
from decoders.sampling import SeededSource
from decoders.testing.oracle import assert_exact, decode, output_law
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate
from decoders.warp import Warping


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
