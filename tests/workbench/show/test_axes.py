"""Axes: what their ticks say."""

import pytest

from workbench.show.plots import Axis


@pytest.mark.parametrize("values", [(1.703, 1.70300001), (0.0, 0.0), (5.0, 5.0), (1.0, 1.01)])
def test_no_two_ticks_say_the_same(values):
    """Perplexities that differed only by rounding had six ticks, each labelled 1.703."""
    said = [f"{tick:,.4g}" for tick in Axis(values, 0, 100).ticks]
    assert len(said) >= 2
    assert len(set(said)) == len(said)
