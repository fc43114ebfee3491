"""A page of the Theory tab: its sliders, its formula, and what its figure shows.

A figure shows curves, the sliders' point and measured points together. The bold line belongs to
the sliders, the disc is their point, and diamonds were measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace as Values  # slider values by name
from typing import Any

import plotly.graph_objects as go

from workbench.show.looks import COLOURS
from workbench.theory.estimates import Measurements

UNIT = [i / 100 for i in range(101)]
NOW, HERE = COLOURS[1], COLOURS[2]  # the sliders' curve and point; measurements
# The quiet curves, told apart by lightness and by dash.
FAMILY = (
    ("#56B4E9", "1px,3px"), ("#3FA3DB", "4px,3px"), ("#2993CE", "9px,3px"),
    ("#1482C0", "9px,3px,2px,3px"), ("#0072B2", "solid"),
)  # fmt: skip
# Keeps a label readable on top of a curve.
HALO = ", ".join(["0 0 4px var(--body-background-fill)"] * 5)


@dataclass(frozen=True)
class Slider:
    """A slider; a whole `value` makes it whole-numbered.

    Attributes:
        name: its name among the slider values
        label: its label
        help: its help
        low: the least value
        high: the greatest value
        value: the value at first
        step: the step
    """

    name: str
    label: str
    help: str
    low: float
    high: float
    value: float
    step: float = 0.01


@dataclass(frozen=True)
class Choice:
    name: str
    label: str
    help: str
    options: Callable[[], dict[str, str]]  # the values that can be picked, each with its words
    value: str


@dataclass(frozen=True)
class Page:
    """One figure of a paper; all texts are Markdown."""

    title: str
    source: str  # the paper, or ""
    formula: str  # in LaTeX, or ""
    says: str  # the figure's meaning for a reader who knows none of the papers
    fields: tuple[Choice | Slider, ...]  # all that a reader can set
    figure: Callable[[Values, Measurements], go.Figure]
    now: Callable[[Values], str]  # the results of the formulas
    of_run: Callable[[Measurements], str]


def family(
    figure: go.Figure,
    xs: Sequence[float],
    symbol: str,
    values: Sequence[float],
    now: float,
    curve: Callable[[float, float], float],
    point: tuple[float, str],
    measured: tuple[float, float | None, str] | None = None,
    shape: str = "linear",
) -> go.Figure:
    """Add the curves of a family: quiet ones for five values, a bold one for the current value.

    Args:
        symbol: the parameter's symbol
        curve: called with the parameter's value and x
        point: the sliders' place across, for a disc on the bold curve, and the disc's text
        measured: where a run lies, for a diamond, and the diamond's text
        shape: Plotly's shape of the lines
    """
    lines = [
        (value, *look, 1.5) for value, look in zip(values, FAMILY, strict=True) if value != now
    ]
    for value, colour, dash, width in [*lines, (now, NOW, "solid", 3)]:
        figure.add_scatter(
            x=list(xs), y=[float(f"{curve(value, x):.5g}") for x in xs],
            name=f"{symbol} = {value:g}", mode="lines",
            line={"color": colour, "dash": dash, "width": width, "shape": shape},
            hovertemplate=f"%{{x:.2f}}: %{{y:.3g}}<extra>{symbol} = {value:g}</extra>",
        )  # fmt: skip
    x, text = point
    y = curve(now, x)
    _mark(figure, x, y, text.format(y), "top", {"symbol": "circle", "size": 11, "color": NOW})
    if measured is not None:
        diamond(figure, *measured)
    return figure


def diamond(figure: go.Figure, x: float, y: float | None, text: str) -> None:
    """A measured point, none if y was not measured; `text` is a format for y."""
    if y is not None:
        look = {"symbol": "diamond", "size": 13, "color": HERE}
        _mark(figure, x, y, text.format(y), "bottom", look)


def _mark(
    figure: go.Figure, x: float, y: float, text: str, above: str, marker: dict[str, Any]
) -> None:
    span = figure.data[0].x
    side = "left" if x > (span[0] + span[-1]) / 2 else "right"  # the side with room
    figure.add_scatter(
        x=[x], y=[y], mode="markers+text", text=[text], textposition=f"{above} {side}",
        textfont={"color": marker["color"], "size": 13, "shadow": HALO},
        marker=marker, cliponaxis=False, showlegend=False,
        hovertemplate="%{x:.2f}: %{text}<extra></extra>",
    )  # fmt: skip
