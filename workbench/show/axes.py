"""The parts of plots as SVG: axes, grids, strokes, paths, marks, and the frame with a legend.

Every text in them is escaped; the style sheet colours texts, so that they are readable on either
ground.
"""

import html
import math
from collections.abc import Sequence

from workbench.show.looks import MARKS, Look, mark

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
    x_ticks: Sequence[float] | None = None, y_ticks: Sequence[float] | None = None,
    y_text: str = "{:,.4g}",
) -> str:  # fmt: skip
    left, bottom = min(x.start, x.end), max(y.start, y.end)
    parts = [
        stroke(left, y(value), width - RIGHT, y(value), "grid")
        + f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">'
        f"{y_text.format(value)}</text>"
        for value in (y.ticks if y_ticks is None else y_ticks)
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
        f'<path class="point" d="{MARKS[style.symbol]}" fill="{style.colour}" '
        f'transform="translate({x:.1f} {y:.1f}) scale({size})">'
        f"<title>{html.escape(says)}</title></path>"
    )


def picture(parts: str, width: int, height: int) -> str:
    return f'<svg class="plot" viewBox="0 0 {width} {height}" aria-hidden="true">{parts}</svg>'


def legend(found: Sequence[tuple[str, Look, str]]) -> str:
    each = "".join(
        f"<li>{mark(style)}<bdi>{html.escape(name)}</bdi><span>{html.escape(text)}</span></li>"
        for name, style, text in found
    )
    return f'<ul class="legend">{each}</ul>'
