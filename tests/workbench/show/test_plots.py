"""Plots of points: a scatter with its legend, and curves."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.show import plots
from workbench.show.looks import look
from workbench.show.plots import Axis, Curve, Point


@pytest.mark.parametrize("values", [(1.703, 1.70300001), (0.0, 0.0), (5.0, 5.0), (1.0, 1.01)])
def test_no_two_ticks_say_the_same(values):
    """Perplexities that differed only by rounding had six ticks, each labelled 1.703."""
    said = [f"{tick:,.4g}" for tick in Axis(values, 0, 100).ticks]
    assert len(said) >= 2
    assert len(set(said)) == len(said)


def test_every_point_is_named_below_the_plot_fastest_first():
    """With five decoders names were written over each other."""
    places = ((i, 10.0 + i) for i in range(15))
    points = [Point(f"d{i}", look(i), 2.0, y, f"{y}", (2.0, 2.0), (y, y)) for i, y in places]
    text = plots.scatter("Speed", "", points, "perplexity", "tokens/s")
    assert re.findall("<bdi>(.*?)</bdi>", text) == [f"d{i}" for i in reversed(range(15))]
    assert text.count('class="point"') == 15


def test_names_are_text():
    points = [Point("<img>", look(0), 1.0, 1.0, "<u>", (1.0, 1.0), (1.0, 1.0))]
    text = plots.scatter("<b>", "<i>", points, "<s>", "<s>")
    assert not re.search("<(b|i|img|u|s)>", text)


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=9))
def test_values_lie_on_their_axis_in_order(values):
    axis = Axis(values, 0, 100)
    places = [axis(v) for v in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= p <= 100 for p in places)
    assert len(axis.ticks) <= 2 * plots.TICKS


def test_curves_have_a_mark_for_each_figure_and_a_level_for_what_has_no_setting():
    places = {0.0: (1.0, 0.9, 1.1), 0.5: (2.0, 1.5, 2.5)}
    found = [Curve(f"d{i}", look(i), places) for i in range(3)]
    level = ("<greedy>", look(3), 1.0)
    text = plots.curves("By threshold", "", found, "threshold", "x greedy", [level])
    assert text.count('class="point"') == 3 * 2 + 1
    assert text.count('class="range"') == 3 * 2
    assert re.findall("<bdi>(.*?)</bdi>", text) == ["d0", "d1", "d2", "&lt;greedy&gt;"]
    assert "<title>d1, 0.5: 2 (1.5 to 2.5)</title>" in text
    assert text.count("1, 2") == 3  # the same as text
