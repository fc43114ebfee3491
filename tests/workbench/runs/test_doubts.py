"""Timings that cannot be trusted, each with its reason: made-up laps, no clock."""

import dataclasses

import pytest

from tests.workbench.runs.timed import lap, result
from workbench.runs import timing
from workbench.runs.record import Load

STEADY = Load(cpu_share=1.0, preempted=1.0, throttled=0.0, stolen=0.0, pressure=0.05, gpu="")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"cpu_share": 0.5}, "core"),
        ({"preempted": 400.0}, "interrupted"),
        ({"throttled": 0.3}, "limit"),
        ({"stolen": 0.2}, "host"),
        ({"pressure": 0.9}, "waited"),
        ({"gpu": "2 other processes used the GPU"}, "2 other processes"),
    ],
)
def test_each_counter_gives_its_reason(change, word):
    """One timing alone has no range, but its counters speak."""
    found = timing.unsteady(result(lap(1, load=dataclasses.replace(STEADY, **change))), None)
    assert len(found) == 1
    assert word in found[0]


def test_a_steady_lap_and_a_machine_that_shows_no_counters_give_none():
    assert timing.unsteady(result(lap(1, load=STEADY)), None) == []
    assert timing.unsteady(result(lap(1), lap(1.01)), None) == []


def test_one_disturbed_lap_of_three_does_not_condemn_the_estimate():
    bad = dataclasses.replace(STEADY, pressure=0.9)
    assert (
        timing.unsteady(result(lap(1, load=bad), lap(1, load=STEADY), lap(1, load=STEADY)), None)
        == []
    )
    assert timing.unsteady(result(lap(1, load=bad), lap(1, load=bad), lap(1, load=STEADY)), None)


def test_a_wide_range_is_unsteady():
    """The same comparison was once called 0.90 and 13.97 times as fast, without a word."""
    greedy = result(lap(1), lap(14), lap(14), decoder="greedy")
    (reason,) = timing.unsteady(result(lap(1), lap(1), lap(1)), greedy)
    assert "3 timings" in reason


def test_an_estimate_that_two_of_three_timings_agree_on_is_steady():
    """The slow third leaves no trace in the estimate, so it is no reason to doubt it."""
    greedy = result(lap(1), lap(14), lap(1), decoder="greedy")
    assert timing.ratio(result(lap(1), lap(1), lap(1)), greedy).value == 1
    assert timing.unsteady(result(lap(1), lap(1), lap(1)), greedy) == []


def test_laps_that_wrote_other_tokens_are_a_fault():
    assert timing.faults(result(lap(1), lap(1))) == []
    (fault,) = timing.faults(result(lap(1), lap(1, same_tokens=False)))
    assert "1 of 2" in fault
