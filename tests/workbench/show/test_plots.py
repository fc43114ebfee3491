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
    points = [Point(f"d{i}", look(i), 2.0, 10.0 + i, f"{10 + i} tokens/s") for i in range(15)]
    text = plots.scatter("Speed", "", points, "perplexity", "tokens/s")
    assert re.findall("<bdi>(.*?)</bdi>", text) == [f"d{i}" for i in reversed(range(15))]
    assert text.count('class="point"') == 15


def test_nothing_to_draw_says_so():
    assert "No decoder of this run has both figures." in plots.scatter("Speed", "", [], "x", "y")


def test_names_are_text():
    text = plots.scatter("<b>", "<i>", [Point("<img>", look(0), 1.0, 1.0, "<u>")], "<s>", "<s>")
    assert not re.search("<(b|i|img|u|s)>", text)


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=9))
def test_values_lie_on_their_axis_in_order(values):
    axis = Axis(values, 0, 100)
    places = [axis(v) for v in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= p <= 100 for p in places)
    assert len(axis.ticks) <= 2 * plots.TICKS


def test_an_axis_is_logarithmic_only_if_values_lie_decades_apart():
    assert Axis([1, 1000], 0, 1).log
    assert not Axis([1, 20], 0, 1).log
    assert Axis([1, 1000], 0, 1).ticks == [1, 10, 100, 1000]
    assert Axis([0, 10], 0, 1).ticks == [0, 2, 4, 6, 8, 10]


def test_curves_have_a_mark_for_each_figure_and_a_level_for_what_has_no_setting():
    found = [
        Curve(f"d{i}", look(i), {0.0: (1.0, 0.9, 1.1), 0.5: (2.0, 1.5, 2.5)}) for i in range(3)
    ]
    text = plots.curves(
        "By threshold", "", found, "threshold", "x greedy", [("<greedy>", look(3), 1.0)]
    )
    assert text.count('class="point"') == 3 * 2 + 1
    assert text.count('class="range"') == 3 * 2
    assert re.findall("<bdi>(.*?)</bdi>", text) == ["d0", "d1", "d2", "&lt;greedy&gt;"]
    assert "<title>d1, 0.5: 2 (1.5 to 2.5)</title>" in text
    assert text.count("1, 2") == 3  # the same as text


def test_points_that_are_joined_have_a_line_through_them():
    points = [Point(f"d{i}", look(i), i, i, "") for i in range(3)]
    assert 'stroke="currentColor"' not in plots.scatter("Speed", "", points, "x", "y")
    assert 'stroke="currentColor"' in plots.scatter("Speed", "", points, "x", "y", points[1:])


def test_ratios_are_coloured_by_how_far_they_are_from_1():
    text = plots.heat(
        "By category", "", ["<maths>", "code"], {"mtad": [2.0, 0.5], "none": [1.0, None]}
    )
    cells = re.findall(
        r"<td style=\"background:color-mix\(in srgb, (#\w+) (\d+)%, transparent\)\">(.*?)</td>",
        text,
    )
    (more, strong, two), (less, _, half), (_, none, one) = cells
    assert (two, half, one, strong, none) == ("2.00", "0.50", "1.00", "60", "0")
    assert more != less
    assert "&lt;maths&gt;" in text
    assert "<td>–</td>" in text
