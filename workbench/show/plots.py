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


def canvas(x: str = "", y: str = "", *, title: str = "", height: int = 330) -> go.Figure:
    """An empty figure with named axes; a legend stands above it."""
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
            "title": {"text": title, "font": {"size": 14}} if title else None,
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
    """A dotted line across."""
    figure.add_hline(y, line={"color": GREY, "width": 1, "dash": "dot"}, annotation={"text": text})


def _values(trace: Any) -> Sequence[Any]:
    """The figures of a line, or of bars, which may lie."""
    return trace.x if getattr(trace, "orientation", None) == "h" else trace.y


def or_words(figure: go.Figure, words: str = "no measurement gives this figure") -> go.Figure:
    """The figure; if it is empty, with words that say why."""
    if all(value is None for trace in figure.data for value in _values(trace)):
        figure.add_annotation(
            text=words, showarrow=False, font={"color": GREY, "size": 13},
            xref="paper", yref="paper", x=0.5, y=0.5,
        )  # fmt: skip
        figure.update_xaxes(showticklabels=False).update_yaxes(showticklabels=False)
    return figure


LEFT, RIGHT, TOP, BOTTOM = 44, 14, 10, 36  # room around the plot for its axes
TICKS = 6
LEAST = 1e-3  # part of a number by which others must differ from it for their labels to differ
DASHED = {
    "solid": "",
    "dash": "7 4",
    "dot": "2 3",
    "dashdot": "7 3 2 3",
    "longdash": "11 4",
    "longdashdot": "11 3 2 3",
}


class Axis:
    """Values along one side of a plot; logarithmic if they lie decades apart.

    Args:
        values: the values to fit
        start: the place of the least value, in units of the picture
        end: the place of the greatest
        decades: a greatest value that is more than this many times the least makes the axis
            logarithmic
    """

    def __init__(self, values: Sequence[float], start: float, end: float, decades: float = 30.0):
        low, high = min(values), max(values)
        self.log = low > 0 and high > decades * low
        self.low, self.high = (math.log10(low), math.log10(high)) if self.log else (low, high)
        spread = self.high - self.low
        alike = spread <= LEAST * abs(self.high)
        room = (abs(self.high) * 0.1 or 1.0) if alike else 0.08 * spread
        self.low, self.high = self.low - room, self.high + room
        if not self.log and low >= 0:
            self.low = max(0.0, self.low)
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        value = math.log10(max(value, 1e-300)) if self.log else value
        part = (value - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """A few round numbers within the axis."""
        if self.log:
            low, high = math.ceil(self.low), math.floor(self.high)
            return [10.0**n for n in range(low, high + 1, 1 + (high - low) // TICKS)]
        rough = (self.high - self.low) / TICKS
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough * 0.999)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, first + 2 * TICKS) if n * step <= self.high]


def framed(title: str, says: str, picture: str, below: str) -> str:
    return (
        f'<figure class="wb-chart"><figcaption><h4>{html.escape(title)}</h4>'
        f'<p class="says">{html.escape(says)}</p></figcaption>{picture}{below}</figure>'
    )


def nothing(title: str, says: str, words: str) -> str:
    """A chart without data, with the reason."""
    return framed(title, says, "", f'<p class="says">{html.escape(words)}</p>')


def grid(
    x: Axis, y: Axis, width: int, height: int, x_title: str, y_title: str,
    x_ticks: Sequence[float] | None = None,
) -> str:  # fmt: skip
    left, bottom = min(x.start, x.end), max(y.start, y.end)
    parts = [
        stroke(left, y(value), width - RIGHT, y(value), "grid")
        + f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
        f"{value:,.4g}</text>"
        for value in y.ticks
    ]
    parts += [
        f'<text x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:,.4g}</text>'
        for value in (x.ticks if x_ticks is None else x_ticks)
    ]
    parts.append(stroke(left, bottom, width - RIGHT, bottom, "axis"))
    for place, title, axis in (
        (f'x="{(left + width - RIGHT) / 2}" y="{height - 4}" text-anchor="middle"', x_title, x),
        (f'x="{left + 6}" y="{TOP + 4}" class="axis-title"', y_title, y),
    ):
        if title:
            title += ", logarithmic" if axis.log else ""
            parts.append(f"<text {place}>{html.escape(title)}</text>")
    return "".join(parts)


def stroke(x0: float, y0: float, x1: float, y1: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>'


def path(places: Sequence[tuple[float, float]], style: Look, width: float = 2) -> str:
    """A line through the places; "" if there is none."""
    if not places:
        return ""
    through = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
    dash = DASHED.get(style.dash, "")
    return (
        f'<path d="{through}" fill="none" stroke="{style.colour}" '
        f'stroke-width="{width:g}" stroke-dasharray="{dash}"/>'
    )


def mark_at(style: Look, x: float, y: float, size: float, says: str) -> str:
    return (
        f'<path class="point" {shape(style)} '
        f'transform="translate({x:.1f} {y:.1f}) scale({size})">'
        f"<title>{html.escape(says)}</title></path>"
    )


def picture(parts: str, width: int, height: int) -> str:
    return f'<svg class="plot" viewBox="0 0 {width} {height}" aria-hidden="true">{parts}</svg>'


def legend(entries: Sequence[tuple[str, Look, str]]) -> str:
    each = "".join(
        f"<li>{mark(style)}<bdi>{html.escape(name)}</bdi><span>{html.escape(text)}</span></li>"
        for name, style, text in entries
    )
    return f'<ul class="legend">{each}</ul>'


FRONT = Look("currentColor", "dot", "circle")  # of the line that joins points


@dataclass(frozen=True)
class Point:
    """A decoder in the plane.

    Attributes:
        name: its name
        look: its colour and mark
        x: the figure across
        y: the figure upwards
        text: both in words
        x_range: (low, high) of x, if known
        y_range: (low, high) of y, if known
    """

    name: str
    look: Look
    x: float
    y: float
    text: str
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Curve:
    """A figure over the values of a setting.

    Attributes:
        name: its name
        look: its colour and mark
        points: (figure, low, high) for each value
    """

    name: str
    look: Look
    points: Mapping[float, tuple[float, float, float]]


def scatter(
    title: str,
    says: str,
    points: Sequence[Point],
    x_title: str,
    y_title: str,
    joined: Sequence[Point] = (),
) -> str:
    """Marks in the plane, and below them the name and the figures of each.

    Args:
        title: the title
        says: a sentence under it
        points: the points
        x_title: the name of the axis across
        y_title: the name of the axis upwards
        joined: points that a dotted line goes through
    """
    width, height = 460, 280
    if not points:
        return nothing(title, says, "No decoder of this run has both figures.")
    x = Axis([v for p in points for v in (p.x, *(p.x_range or ()))], LEFT, width - RIGHT)
    y = Axis([v for p in points for v in (p.y, *(p.y_range or ()))], height - BOTTOM, TOP)
    parts = [
        grid(x, y, width, height, x_title, y_title),
        path([(x(p.x), y(p.y)) for p in joined], FRONT, 1.4),
    ]
    for p in points:
        if p.y_range:
            parts.append(stroke(x(p.x), y(p.y_range[0]), x(p.x), y(p.y_range[1]), "range"))
        if p.x_range:
            parts.append(stroke(x(p.x_range[0]), y(p.y), x(p.x_range[1]), y(p.y), "range"))
    parts += [mark_at(p.look, x(p.x), y(p.y), 7, f"{p.name}: {p.text}") for p in points]
    return framed(
        title, says, picture("".join(parts), width, height),
        legend([(p.name, p.look, p.text) for p in sorted(points, key=lambda p: -p.y)]),
    )  # fmt: skip


def curves(
    title: str,
    says: str,
    lines: Sequence[Curve],
    x_title: str,
    y_title: str,
    levels: Sequence[tuple[str, Look, float]] = (),
) -> str:
    """Figures over a setting, with their ranges.

    Args:
        title: the title
        says: a sentence under it
        lines: the curves
        x_title: the name of the setting
        y_title: the name of the figure
        levels: (name, look, figure) of decoders without the setting, drawn as dotted lines across
    """
    at, width, height = sorted({x for curve in lines for x in curve.points}), 460, 280
    x = Axis(at, LEFT, width - RIGHT, math.inf)
    values = [v for curve in lines for point in curve.points.values() for v in point]
    y = Axis([*values, *(v for _, _, v in levels)], height - BOTTOM, TOP)
    parts = [grid(x, y, width, height, x_title, y_title, at)]
    parts += [
        path([(x.start, y(value)), (x.end, y(value))], style._replace(dash="dot"), 1.4)
        + mark_at(style, x.end, y(value), 5, f"{name}: {value:.3g}")
        for name, style, value in levels
    ]
    for curve in lines:
        parts += [
            stroke(x(a), y(low), x(a), y(high), "range")
            for a, (_, low, high) in curve.points.items()
        ]
        parts.append(
            path([(x(a), y(value)) for a, (value, _, _) in curve.points.items()], curve.look)
        )
        parts += [
            mark_at(
                curve.look, x(a), y(value), 5,
                f"{curve.name}, {a:g}: {value:.3g} ({low:.3g} to {high:.3g})",
            )
            for a, (value, low, high) in curve.points.items()
        ]  # fmt: skip
    listed = [
        (c.name, c.look, ", ".join(f"{value:.3g}" for value, _, _ in c.points.values()))
        for c in lines
    ]
    listed += [(name, style, f"{value:.3g}") for name, style, value in levels]
    return framed(title, says, picture("".join(parts), width, height), legend(listed))
