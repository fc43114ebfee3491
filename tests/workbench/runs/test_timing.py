"""Estimates from several timings, their ranges and their limits: made-up laps, no clock."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workbench.runs.timed import lap, result
from workbench.runs import timing
from workbench.runs.record import Load, RoundRecord, Sample


def test_a_single_request_takes_the_undisturbed_seconds_of_each_round():
    """One disturbance in each lap, at another round: no lap is clean, the estimate is."""
    disturbed = [lap(9, 1, 1), lap(1, 9, 1), lap(1, 1, 9)]
    assert timing.whole(disturbed) == pytest.approx(3)
    assert timing.after_first(disturbed) == pytest.approx(2)
    assert timing.whole([lap(9, 1), lap(9, 9), lap(1, 9)]) == 2  # two slow ones of three


def test_rounds_that_differ_and_batches_take_the_undisturbed_one_of_whole_laps():
    differ = [lap(9, 1, 1), lap(1, 9, 1, same_rounds=False), lap(1, 1, 3)]
    assert timing.whole(differ) == 5
    assert timing.whole([lap(seconds=s) for s in (7.0, 5.0, 100.0)]) == 5


def test_one_lucky_timing_of_twenty_is_not_the_estimate():
    """A minimum falls with every further timing. The second quickest of twenty does not follow an
    outlier."""
    assert timing.whole([lap(0.1), *(lap(1) for _ in range(19))]) == 1


def test_the_range_holds_the_middle_of_the_resamples_of_whole_laps():
    """More than a tenth of resamples draw one lap three times: three of 27 ways."""
    found = timing.estimate(result(lap(1), lap(2), lap(4)), lambda seconds: seconds)
    assert (found.value, found.low, found.laps) == (1, 1, 3)
    assert found.high == 2  # eight of them did not draw the first lap, only one drew the last alone


def test_a_range_narrows_with_more_timings():
    """The least and the most of all resamples grew with every lap. Among more laps there is always
    one that was disturbed."""
    source = np.random.default_rng(0)
    for few, many in ((3, 9), (5, 20)):
        widths = []
        for count in (few, many):
            laps = [lap(seconds) for seconds in 1 + source.exponential(0.2, count)]
            found = timing.estimate(result(*laps), lambda seconds: seconds)
            widths.append(found.high - found.low)
        assert widths[1] < widths[0]


def test_one_timing_has_no_range_and_no_timing_no_figure():
    found = timing.estimate(result(lap(1, 1)), lambda seconds: 1 / seconds)
    assert found == timing.Estimate(0.5, 0.5, 0.5, 1)
    assert timing.estimate(result(), lambda seconds: seconds) is None
    assert not timing.unsteady(result(), None)


def test_a_ratio_pairs_the_laps_of_a_cycle():
    """A machine that halves its speed in the second cycle halves both: the ratio does not move."""
    own, greedy = result(lap(1), lap(2)), result(lap(3), lap(6), decoder="greedy")
    found = timing.ratio(own, greedy)
    assert (found.value, found.low, found.high) == pytest.approx((3, 3, 3))
    assert found.laps == 2
    stopped = result(lap(1), decoder="greedy")
    assert timing.ratio(own, stopped).laps == 1  # only complete cycles count


@given(st.lists(st.lists(st.floats(0.001, 10), min_size=2, max_size=2), min_size=1, max_size=9))
def test_the_estimate_lies_in_its_range(rounds):
    found = timing.estimate(result(*(lap(*each) for each in rounds)), lambda seconds: seconds)
    assert found.low <= found.value * (1 + 1e-9)
    assert found.value <= found.high * (1 + 1e-9)
    assert found.value == pytest.approx(sum(min(each) for each in zip(*rounds, strict=True)))


def test_energy_is_that_of_the_laps_that_drew_nothing():
    """The first lap's energy contains the pauses in which the page is drawn, its seconds do not.
    That was a factor of 1.18."""
    drawn = lap(1, joules=9.0, drawn=True)
    quiet = [lap(1, joules=j, drawn=False) for j in (2.0, 4.0)]
    assert timing.joules([drawn, *quiet]) == 3
    assert timing.energy([drawn, *quiet]).joules == 3
    assert "drawing" in timing.energy([drawn]).detail
    assert timing.energy([drawn, lap(1, drawn=False)]).source == "not measured: a test"


def test_a_lap_whose_energy_was_not_measured_only_lacks_a_range_of_its_own():
    """A resample of that lap alone once ended the drawing of the page."""
    laps = [lap(1, drawn=True), *(lap(1, joules=j, drawn=False) for j in (2.0, 4.0))]
    found = timing.estimate(result(*laps), lambda joules: joules, timing.joules)
    assert (found.value, found.low, found.high) == (3, 2, 4)


def test_a_lap_without_seconds_gives_no_infinite_speed():
    """Runs that are imported may say so."""
    one_of_many = result(lap(0), *(lap(1) for _ in range(19)))
    found = timing.estimate(one_of_many, lambda seconds: 1 / seconds)
    assert (found.value, found.low, found.high) == (1, 1, 1)
    assert timing.estimate(result(lap(0)), lambda seconds: 1 / seconds) is None


def rounds(*seconds: tuple[float, float]) -> list[Sample]:
    """A text whose rounds took these seconds of draft and target passes."""
    every = [RoundRecord(i, [], 0, [], False, d, v, 1, 1) for i, (d, v) in enumerate(seconds)]
    return [Sample(0, 1, rounds=every)]


def test_the_seconds_of_rounds_add_up_to_those_of_the_text():
    """A race on other seconds than those of the figures would contradict them."""
    two = rounds((0.1, 0.2), (0.1, 0.3))
    found = replace(result(lap(9, 1), lap(1, 9)), samples=two)
    assert timing.round_seconds(found) == [1, 1]
    assert sum(timing.round_seconds(found)) == timing.whole(found.laps)
    differ = replace(found, laps=[lap(9, 1), lap(1, 2, same_rounds=False)])
    assert timing.round_seconds(differ) == [9, 1]


def test_rounds_that_were_not_timed_share_the_seconds_as_their_passes_do():
    """Runs of earlier versions have no laps, and lengths chosen by the clock give other rounds.
    Those raced on the seconds of their passes, which were not the panel's."""
    two = rounds((0.1, 0.2), (0.1, 0.3))
    for each, expected in (
        ([], [0.3, 0.4]),
        ([lap(seconds=1.4)], [0.6, 0.8]),
        ([lap(0.2, 0.2, 0.3)], [0.3, 0.4]),
    ):
        found = replace(result(*each), samples=two)
        assert timing.round_seconds(found) == pytest.approx(expected)
    idle = replace(result(lap(seconds=1.0)), samples=rounds((0, 0)))
    assert timing.round_seconds(idle) == [0]


STEADY = Load(cpu_share=1.0, preempted=1.0, throttled=0.0, stolen=0.0, pressure=0.05, gpu="")


@pytest.mark.parametrize(("change", "says"), [
    ({"cpu_share": 0.5}, timing.BUSY),
    ({"preempted": 400.0}, timing.BUSY),
    ({"throttled": 0.3}, timing.BUSY),
    ({"stolen": 0.2}, timing.BUSY),
    ({"pressure": 0.9}, timing.BUSY),
    ({"gpu": "2 other processes used the GPU"}, "2 other processes used the GPU"),
])  # fmt: skip
def test_each_counter_is_a_reason(change, says):
    """One timing alone has no range, but its counters speak."""
    assert timing.unsteady(result(lap(1, load=replace(STEADY, **change))), None) == [says]


def test_a_steady_lap_and_a_machine_that_shows_no_counters_give_none():
    assert timing.unsteady(result(lap(1, load=STEADY)), None) == []
    assert timing.unsteady(result(lap(1), lap(1.01)), None) == []


def test_one_disturbed_lap_of_three_does_not_condemn_the_estimate():
    bad, good = lap(1, load=replace(STEADY, pressure=0.9)), lap(1, load=STEADY)
    assert timing.unsteady(result(bad, good, good), None) == []
    assert timing.unsteady(result(bad, bad, good), None)


def test_a_wide_range_is_unsteady():
    """The same comparison was once called 0.90 and 13.97 times as fast, without a word."""
    greedy = result(lap(1), lap(14), lap(14), decoder="greedy")
    (reason,) = timing.unsteady(result(lap(1), lap(1), lap(1)), greedy)
    assert "3 timings" in reason


def test_laps_that_wrote_other_tokens_are_a_fault():
    assert timing.unsteady(result(lap(1), lap(1)), None) == []
    (fault,) = timing.unsteady(result(lap(1), lap(1, same_tokens=False)), None)
    assert "1 of 2" in fault
