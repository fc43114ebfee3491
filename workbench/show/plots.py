"""Parts that figures share: the canvas and lines of Plotly, and plots of points as SVG.

Every text in them is escaped; the style sheet colours texts, so that they are readable on either
ground.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from workbench.show.looks import Look, mark, shape

GREY = "#808691"  # readable on either ground


def canvas(x: str = "", y: str = "", *, height: int = 330) -> go.Figure:
    axis = {
        "gridcolor": "rgba(128,134,145,0.18)",
        "zeroline": False,
        "automargin": True,
        "title_font_size": 12,
    }
    return go.Figure(
        layout={
            "height": height, "margin": {"l": 8, "r": 20, "t": 36, "b": 8}, "bargap": 0.4,
            "template": {}, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"color": GREY, "size": 12, "family": "ui-sans-serif, system-ui, sans-serif"},
            "legend": {"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0, "font_size": 11},
            "xaxis": axis | {"title": {"text": x}}, "yaxis": axis | {"title": {"text": y}},
        }
    )  # fmt: skip


def line(
    figure: go.Figure, points: Mapping[Any, float | None], name: str, style: Look, hover: str
) -> None:
    """Add a line with a mark at each point.

    Args:
        figure: the figure
        points: x -> y, None for a gap
        name: its name in the legend
        style: its look
        hover: Plotly's template of the text at a point
    """
    figure.add_scatter(
        x=list(points), y=list(points.values()), name=name, mode="lines+markers", connectgaps=True,
        line={"color": style.colour, "dash": style.dash, "width": 2},
        marker={"symbol": style.symbol, "size": 8},
        hovertemplate=f"{hover}<extra>{name}</extra>",
    )  # fmt: skip


def level(figure: go.Figure, y: float, text: str = "") -> None:
    figure.add_hline(y, line={"color": GREY, "width": 1, "dash": "dot"}, annotation={"text": text})


def or_words(figure: go.Figure, words: str = "no measurement gives this figure") -> go.Figure:
    """The figure; if it is empty, with words that say why."""
    shown = (trace.x if trace.orientation == "h" else trace.y for trace in figure.data)
    if all(value is None for values in shown for value in values):
        figure.add_annotation(
            text=words, showarrow=False, font={"color": GREY, "size": 13},
            xref="paper", yref="paper", x=0.5, y=0.5,
        )  # fmt: skip
        figure.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False)
    return figure


WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 44, WIDTH - 14, 10, HEIGHT - 36  # the plot without its axes
TICKS = 6
LEAST = 1e-3  # part of a number by which others must differ from it for their labels to differ


class Axis:
    """Values along one side of a plot.

    Args:
        values: the values to fit
        start: the place of the least value, in units of the picture
        end: the place of the greatest
    """

    def __init__(self, values: Sequence[float], start: float, end: float):
        low, high = min(values), max(values)
        alike = high - low <= LEAST * abs(high)
        room = (abs(high) * 0.1 or 1.0) if alike else 0.08 * (high - low)
        self.low, self.high = low - room, high + room
        if low >= 0:
            self.low = max(0.0, self.low)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        part = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        rough = (self.high - self.low) / TICKS
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough * 0.999)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, first + 2 * TICKS) if n * step <= self.high]


@dataclass(frozen=True)
class Point:
    """A mark in the plane.

    Attributes:
        name: its name
        look: its colour and mark
        x: the figure across
        y: the figure upwards
        text: both in words
        x_range: (low, high) of x
        y_range: (low, high) of y
    """

    name: str
    look: Look
    x: float
    y: float
    text: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]


@dataclass(frozen=True)
class Curve:
    name: str
    look: Look
    points: Mapping[float, tuple[float, float, float]]

    @property
    def marks(self) -> list[Point]:
        return [
            Point(
                f"{self.name}, {x:g}", self.look, x, y,
                f"{y:.3g} ({low:.3g} to {high:.3g})", (x, x), (low, high),
            )
            for x, (y, low, high) in self.points.items()
        ]  # fmt: skip


Level = tuple[str, Look, float]  # the name, the look and the figure of a decoder


def scatter(
    title: str,
    says: str,
    points: Sequence[Point],
    x_title: str,
    y_title: str,
) -> str:
    """Marks in the plane, and below them the name and the figures of each.

    Args:
        title: the title
        says: a sentence under it
        points: the points
        x_title: the name of the axis across
        y_title: the name of the axis upwards
    """
    x = Axis([v for p in points for v in p.x_range], LEFT, RIGHT)
    picture = _picture(points, x, x.ticks, x_title, y_title, [])
    listed = [(p.name, p.look, p.text) for p in sorted(points, key=lambda p: -p.y)]
    return framed(title, says, picture, _legend(listed))


def curves(
    title: str,
    says: str,
    lines: Sequence[Curve],
    x_title: str,
    y_title: str,
    levels: Sequence[Level] = (),
) -> str:
    """Figures over a setting, with their ranges.

    Args:
        title: the title
        says: a sentence under it
        lines: the curves
        x_title: the name of the setting
        y_title: the name of the figure
        levels: decoders without the setting, drawn as dotted lines across
    """
    points = [point for curve in lines for point in curve.marks]
    at = sorted({point.x for point in points})
    joined = [(curve.look, curve.marks) for curve in lines]
    x = Axis(at, LEFT, RIGHT)
    picture = _picture(points, x, at, x_title, y_title, joined, levels)
    listed = [
        (c.name, c.look, ", ".join(f"{value:.3g}" for value, _, _ in c.points.values()))
        for c in lines
    ]
    listed += [(name, style, f"{value:.3g}") for name, style, value in levels]
    return framed(title, says, picture, _legend(listed))


def framed(title: str, says: str, picture: str, below: str) -> str:
    return (
        f'<figure class="wb-chart"><figcaption><h4>{html.escape(title)}</h4>'
        f'<p class="says">{html.escape(says)}</p></figcaption>{picture}{below}</figure>'
    )


DASHED = {
    "solid": "",
    "dash": "7 4",
    "dot": "2 3",
    "dashdot": "7 3 2 3",
    "longdash": "11 4",
    "longdashdot": "11 3 2 3",
}


def _picture(
    points: Sequence[Point],
    x: Axis,
    x_ticks: Sequence[float],
    x_title: str,
    y_title: str,
    joined: Sequence[tuple[Look, Sequence[Point]]],
    levels: Sequence[Level] = (),
) -> str:
    reach = [v for p in points for v in p.y_range]
    y = Axis([*reach, *(value for _, _, value in levels)], BOTTOM, TOP)
    parts = [
        *(
            f'<path class="grid" d="M{LEFT} {y(value):.1f}H{RIGHT}"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.4g}</text>'
            for value in y.ticks
        ),
        *(
            f'<text x="{x(value):.1f}" y="{BOTTOM + 16}" text-anchor="middle">{value:,.4g}</text>'
            for value in x_ticks
        ),
        f'<path class="axis" d="M{LEFT} {BOTTOM}H{RIGHT}"/>',
        f'<text x="{(LEFT + RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">'
        f"{html.escape(x_title)}</text>",
        f'<text x="{LEFT + 6}" y="{TOP + 4}" class="axis-title">{html.escape(y_title)}</text>',
    ]
    for name, style, value in levels:
        parts.append(_line([(LEFT, y(value)), (RIGHT, y(value))], style._replace(dash="dot")))
        parts.append(_mark(style, RIGHT, y(value), f"{name}: {value:.3g}"))
    for p in points:
        (left, right), (low, high) = map(x, p.x_range), map(y, p.y_range)
        across, upwards = (
            f"M{left:.1f} {y(p.y):.1f}H{right:.1f}",
            f"M{x(p.x):.1f} {low:.1f}V{high:.1f}",
        )
        parts.append(f'<path class="range" d="{across}{upwards}"/>')
    parts += [_line([(x(p.x), y(p.y)) for p in group], style) for style, group in joined]
    parts += [_mark(p.look, x(p.x), y(p.y), f"{p.name}: {p.text}") for p in points]
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true">'
        f"{''.join(parts)}</svg>"
    )


def _line(places: Sequence[tuple[float, float]], style: Look) -> str:
    through = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    return (
        f'<path d="M{through}" fill="none" stroke="{style.colour}" stroke-width="1.6" '
        f'stroke-dasharray="{DASHED.get(style.dash, "")}"/>'
    )


def _mark(style: Look, x: float, y: float, says: str) -> str:
    return (
        f'<path class="point" {shape(style)} transform="translate({x:.1f} {y:.1f}) scale(6)">'
        f"<title>{html.escape(says)}</title></path>"
    )


def _legend(entries: Sequence[tuple[str, Look, str]]) -> str:
    each = "".join(
        f"<li>{mark(style)}<bdi>{html.escape(name)}</bdi><span>{html.escape(text)}</span></li>"
        for name, style, text in entries
    )
    return f'<ul class="legend">{each}</ul>'
