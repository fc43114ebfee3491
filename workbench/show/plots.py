"""Plots of points as inline pictures that grow with their column: a scatter with its legend, and lines over a few places.

Every text in them is escaped; colours of text come from the style sheet, so that they are readable on either ground.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.show.looks import MARKS, Look, mark

LEFT, RIGHT, TOP, BOTTOM = 44, 14, 10, 36  # room around the plot for its axes
NOT_TOGETHER = 6  # beyond so many lines each has a plot of its own
TICKS = 6
DASHED = {"solid": "", "dash": "7 4", "dot": "2 3", "dashdot": "7 3 2 3", "longdash": "11 4", "longdashdot": "11 3 2 3"}


@dataclass(frozen=True)
class Point:
    """A decoder in the plane, with the ranges of both figures (low, high) if they are known; `text` says the same in words."""

    name: str
    look: Look
    x: float
    y: float
    text: str
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Line:
    """A decoder's shares over places 1, 2, ..., from 0 to 1; `texts` say each in words."""

    name: str
    look: Look
    shares: Mapping[int, float]
    texts: Mapping[int, str]


class Axis:
    """Values along one side of a plot; logarithmic if they lie decades apart."""

    def __init__(self, values: Sequence[float], start: float, end: float, decades: float = 30.0):
        low, high = min(values), max(values)
        self.log = low > 0 and high > decades * low
        self.low, self.high = (math.log10(low), math.log10(high)) if self.log else (low, high)
        room = 0.08 * (self.high - self.low) or abs(self.high) * 0.1 or 1.0
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


def scatter(title: str, says: str, points: Sequence[Point], x_title: str, y_title: str) -> str:
    """Marks in the plane, and below it each one's name and figures."""
    width, height = 460, 280
    if not points:
        return framed(title, says, "", '<p class="says">No decoder of this run has both figures.</p>')
    x = Axis([v for p in points for v in (p.x, *(p.x_range or ()))], LEFT, width - RIGHT)
    y = Axis([v for p in points for v in (p.y, *(p.y_range or ()))], height - BOTTOM, TOP)
    parts = [_grid(x, y, width, height, x_title, y_title)]
    for p in points:
        if p.y_range:
            parts.append(_stroke(x(p.x), y(p.y_range[0]), x(p.x), y(p.y_range[1]), "range"))
        if p.x_range:
            parts.append(_stroke(x(p.x_range[0]), y(p.y), x(p.x_range[1]), y(p.y), "range"))
    parts += [_mark(p.look, x(p.x), y(p.y), 7, f"{p.name}: {p.text}") for p in points]
    listed = [(p.name, p.look, p.text) for p in sorted(points, key=lambda p: -p.y)]
    return framed(title, says, _picture("".join(parts), width, height), _legend(listed))


def lines(title: str, says: str, found: Sequence[Line], x_title: str) -> str:
    """Shares over places: together, or each in a plot of its own if there are many."""
    if not found:
        return framed(title, says, "", '<p class="says">No decoder of this run drafts.</p>')
    last = max(place for line in found for place in line.shares)
    if len(found) <= NOT_TOGETHER:
        picture = _shares(found, last, 460, 280, x_title)
        return framed(title, says, picture, _legend([(line.name, line.look, _told(line)) for line in found]))
    each = "".join(
        f'<div class="small"><b>{mark(line.look)}<bdi>{html.escape(line.name)}</bdi></b>{_shares([line], last, 220, 130, "")}'
        f'<span class="wb-unseen">{html.escape(_told(line))}</span></div>'
        for line in found
    )
    return framed(
        title, says, f'<div class="multiples">{each}</div>', f'<p class="says">Across: {html.escape(x_title)}.</p>'
    )


def framed(title: str, says: str, picture: str, below: str) -> str:
    return (
        f'<figure class="wb-chart"><figcaption><h4>{html.escape(title)}</h4><p class="says">{html.escape(says)}</p></figcaption>'
        f"{picture}{below}</figure>"
    )


def _shares(found: Sequence[Line], last: int, width: int, height: int, x_title: str) -> str:
    x = Axis([1, max(2, last)], LEFT, width - RIGHT, math.inf)
    y = Axis([0.0, 1.0], height - (BOTTOM if x_title else 22), TOP, math.inf)
    step = max(1, math.ceil(last / (10 if x_title else 5)))
    parts = [_grid(x, y, width, height, x_title, "", list(range(1, last + 1, step)), [0, 0.5, 1], "{:.0%}")]
    for line in found:
        places = [(x(place), y(share)) for place, share in line.shares.items()]
        dash = DASHED.get(line.look.dash, "")
        path = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        parts.append(
            f'<path d="{path}" fill="none" stroke="{line.look.colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
        )
        for (a, b), text in zip(places, line.texts.values(), strict=True):
            parts.append(_mark(line.look, a, b, 5, f"{line.name}: {text}"))
    return _picture("".join(parts), width, height)


def _told(line: Line) -> str:
    """The shares in a row, as text: "78%, 64%, 50%"."""
    return ", ".join(f"{share:.0%}" for share in line.shares.values())


def _grid(
    x: Axis, y: Axis, width: int, height: int, x_title: str, y_title: str,
    x_ticks: Sequence[float] | None = None, y_ticks: Sequence[float] | None = None, y_text: str = "{:,.4g}",
) -> str:  # fmt: skip
    left, bottom = min(x.start, x.end), max(y.start, y.end)
    parts = []
    for value in y.ticks if y_ticks is None else y_ticks:
        parts.append(_stroke(left, y(value), width - RIGHT, y(value), "grid"))
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{y_text.format(value)}</text>')
    for value in x.ticks if x_ticks is None else x_ticks:
        parts.append(f'<text x="{x(value):.1f}" y="{bottom + 16}" text-anchor="middle">{value:,.4g}</text>')
    parts.append(_stroke(left, bottom, width - RIGHT, bottom, "axis"))
    if x_title:
        log = ", logarithmic" if x.log else ""
        parts.append(
            f'<text x="{(left + width - RIGHT) / 2}" y="{height - 4}" text-anchor="middle">{html.escape(x_title + log)}</text>'
        )
    if y_title:
        log = ", logarithmic" if y.log else ""
        parts.append(f'<text x="{left + 6}" y="{TOP + 4}" class="axis-title">{html.escape(y_title + log)}</text>')
    return "".join(parts)


def _stroke(x0: float, y0: float, x1: float, y1: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"/>'


def _mark(style: Look, x: float, y: float, size: float, says: str) -> str:
    return (
        f'<path class="point" d="{MARKS[style.symbol]}" fill="{style.colour}" transform="translate({x:.1f} {y:.1f}) scale({size})">'
        f"<title>{html.escape(says)}</title></path>"
    )


def _picture(parts: str, width: int, height: int) -> str:
    return f'<svg class="plot" viewBox="0 0 {width} {height}" aria-hidden="true">{parts}</svg>'


def _legend(found: Sequence[tuple[str, Look, str]]) -> str:
    each = "".join(
        f"<li>{mark(style)}<bdi>{html.escape(name)}</bdi><span>{html.escape(text)}</span></li>"
        for name, style, text in found
    )
    return f'<ul class="legend">{each}</ul>'
