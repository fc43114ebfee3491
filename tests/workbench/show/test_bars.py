"""Bars that read with one decoder and with fifteen."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.show.bars import Bar, BarChart
from workbench.show.looks import look

AMOUNTS = st.floats(-1e100, 1e100)


def chart(*values: float | None, **options) -> BarChart:
    bars = [
        Bar(f"d{i}", look(i), () if v is None else (v,), "–" if v is None else f"{v:g}")
        for i, v in enumerate(values)
    ]
    return BarChart("speed", bars, **options)


def names(text: str) -> list[str]:
    return re.findall(r"<bdi>(.*?)</bdi>", text)


def numbers(text: str, name: str) -> list[float]:
    return [float(v) for v in re.findall(rf"{name}:(-?[\d.]+)%", text)]


def test_the_best_is_on_top_and_what_has_no_figure_at_the_bottom():
    assert names(chart(1, None, 3, 2, better="higher").html()) == ["d2", "d3", "d0", "d1"]
    assert names(chart(1, None, 3, 2, better="lower").html()) == ["d0", "d3", "d2", "d1"]


@pytest.mark.parametrize("count", [1, 5, 15])
def test_every_decoder_has_its_name_and_number(count):
    """With 15 decoders every second name was missing, and numbers lay over each other."""
    text = chart(*range(1, count + 1)).html()
    assert len(names(text)) == text.count('class="value"') == count


def test_lengths_are_in_proportion():
    assert numbers(chart(1, 4).html(), "width") == [100, 25]


def test_values_decades_apart_get_a_logarithmic_axis_that_says_so():
    """perplexity 2 beside 5,000 was a bar without length."""
    text = chart(1, 10, 1000).html()
    assert "logarithmic scale" in text
    assert [round(v) for v in numbers(text, "left")] == [100, 33, 0]
    assert "logarithmic" not in chart(1, 10).html()


def test_a_range_lies_where_its_ends_are():
    bar = Bar("d", look(0), (5.0,), "5", low=4.0, high=10.0)
    text = BarChart("speed", [bar]).html()
    assert '<i class="range" style="left:40.00%;width:60.00%">' in text
    assert "range" not in chart(5).html()


def test_two_parts_follow_each_other():
    text = BarChart("ms", [Bar("d", look(0), (1.0, 3.0), "1 + 3")]).html()
    assert numbers(text, "left") == [0, 25]
    assert numbers(text, "width") == [25, 75]


def test_names_and_figures_are_text():
    hostile = Bar("<img src=x onerror=alert(1)>", look(0), (1.0,), "<b>1</b>", '"><script>')
    text = BarChart("<i>t</i>", [hostile], says="<u>").html()
    for part in ("<img", "<b>1", "<script", "<i>t", "<u>"):
        assert part not in text


@given(st.lists(AMOUNTS, max_size=6), AMOUNTS, AMOUNTS)
def test_whatever_a_run_from_elsewhere_holds_it_stays_inside(values, low, high):
    bars = [Bar(f"d{i}", look(i), (v,), "x", low=low, high=high) for i, v in enumerate(values)]
    text = BarChart("speed", bars).html()
    assert not re.search("nan|inf", text.replace("infer", ""))
    for left in numbers(text, "left"):
        assert 0 <= left <= 100
