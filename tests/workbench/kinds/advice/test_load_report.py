"""What a reader is told about the loads at which speculation pays."""

import math

import pytest

from workbench.experiments.figures import Interval
from workbench.kinds.advice.load_report import verdict
from workbench.kinds.advice.loads import Gain


def gain(low: float, high: float, length: int = 3) -> Gain:
    return Gain(length, Interval((low + high) / 2, low, high))


@pytest.mark.parametrize(
    ("gains", "says"),
    [
        ({1: gain(1.5, 1.6), 16: gain(1.1, 1.2)}, "pays up to the largest load measured, 16."),
        (
            {1: gain(1.5, 1.6), 4: gain(1.1, 1.2), 8: gain(0.8, 0.9)},
            "pays up to 4 requests at once, and stops paying at 8.",
        ),
        ({1: gain(0.9, 1.6), 4: gain(0.7, 0.8)}, "stops paying at 4 requests at once."),
        ({1: gain(0.8, 0.9), 4: gain(0.7, 0.8)}, "does not pay, from 1 request at once on."),
        ({1: gain(0.0, math.inf)}, "does not surely pay or stop paying"),
        ({1: gain(1.5, 1.6), 2: gain(0.9, 1.1), 4: gain(0.7, 0.8)}, "uncertain at 2"),
        (
            {1: gain(0.8, 0.9), 2: gain(1.2, 1.3), 4: gain(0.7, 0.8)},
            "pays at 2 requests at once, and does not pay at 1 and 4.",
        ),
        (
            {1: gain(1.5, 1.6), 4: gain(1.2, 1.3), 8: gain(0.97, 1.04)},
            "pays up to 4 requests at once. Whether it pays is uncertain at 8.",
        ),
        (
            {1: gain(1.5, 1.6), 4: gain(0.8, 0.9), 16: gain(1.1, 1.2)},
            "pays at 1 and 16 requests at once, and does not pay at 4.",
        ),
        (
            {1: gain(0.8, 0.9), 2: gain(0.9, 1.1)},
            "does not pay at 1 request at once. Whether it pays is uncertain at 2.",
        ),
    ],
)
def test_the_verdict_follows_from_the_gains(gains, says):
    """It said that nothing surely pays where the largest load alone was uncertain, that all loads
    up to the largest pay where one between did not, and “from 1 request on” before “uncertain”."""
    assert says in verdict(gains, "the largest load measured, 16")


def test_without_a_measured_load_nothing_is_said_of_any():
    """It said that nothing surely pays “up to the largest load measured, 1”."""
    assert verdict({}, "the largest load measured, 1") == "no load was measured."


def test_the_flag_drafts_only_where_it_pays():
    says = verdict({1: gain(1.5, 1.6, 4), 4: gain(1.1, 1.2, 1), 8: gain(0.8, 0.9, 1)}, "8")
    assert "For 1 request: --set speculative.draft_length=4;" in says
    assert "[[1, 3, 4], [4, 7, 1], [8, 8, 0]]" in says
    assert "--set" not in verdict({1: gain(0.8, 0.9)}, "1")
