"""FLy: a refused token stays where the target is unsure and agrees with what follows."""

import math

import pytest

from decoders.distribution import Warping
from decoders.errors import InputError
from decoders.methods.named import FLy, Speculative
from decoders.randomness import SeededSource
from decoders.testing.oracle import decode, output_law
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate

GREEDY = Warping(0)
# The target wants 0 and the draft 1 at the first place only; after it both want 2.
FIRST = ((0.02, 0.96, 0.02), (0.01, 0.01, 0.98))


def first_round(p: float, window: int, threshold: float, length: int = 4):
    rest = (1 - p) / 2
    target = Rows(((p, rest, rest), FIRST[1]))
    situation = Situation(target, Rows(FIRST), budget=9, warping=Warping(top_k=3))
    for seed in range(300):
        r = decode(FLy(length, threshold, window), situation, SeededSource(seed)).rounds[0]
        first = r.trials[0]
        if first.u is not None and first.u >= first.accept_probability:
            yield r


def test_a_refusal_of_an_unsure_target_that_agrees_later_stays():
    kept = [r for r in first_round(0.4, 2, 0.3) if r.trials[0].fate == Fate.ACCEPTED]
    assert kept
    assert all(r.accepted >= 3 for r in kept)  # it and the window


def test_a_refusal_of_a_sure_target_is_corrected():
    entropy = -0.9 * math.log(0.9) - 0.1 * math.log(0.05)
    assert any(r.accepted for r in first_round(0.9, 2, entropy - 0.01))
    corrected = list(first_round(0.9, 2, entropy + 0.01))
    assert corrected
    assert all((r.accepted, r.tested) == (0, 1) for r in corrected)


def test_without_room_for_the_window_it_is_speculative_decoding():
    with pytest.raises(InputError, match="the rule fly needs drafts longer than its window of 6"):
        FLy(6)
    with pytest.raises(InputError, match="lengthen the draft or shorten the window"):
        Speculative(rule="fly")
    strict = FLy(3, threshold=2.0, window=1)  # no three tokens have so much entropy
    for seed in range(5):
        situation = drawn(3, seed, budget=9)
        one, other = (decode(m, situation, SeededSource(seed)) for m in (strict, Speculative(3)))
        assert [r.trials for r in one.rounds] == [r.trials for r in other.rounds]


def test_it_changes_the_law_but_not_what_a_sure_target_writes():
    assert FLy.law is None
    situation = drawn(3, 1, warping=GREEDY)
    assert output_law(FLy(2, window=1), situation) == output_law(Speculative(2), situation)
