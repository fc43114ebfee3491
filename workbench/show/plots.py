"""Plots of points that grow with their column: scatter, lines, curves, ratios as a table."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.show.axes import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Axis,
    framed,
    grid,
    legend,
    mark_at,
    nothing,
    path,
    picture,
    stroke,
)  # fmt: skip
from workbench.show.looks import COLOURS, Look, mark

NOT_TOGETHER = 6  # beyond this many lines, each has its own plot
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
class Line:
    """A decoder's shares over places.

    Attributes:
        name: its name
        look: its colour and mark
        shares: the share, from 0 to 1, at each place 1, 2, ...
        texts: each in words
    """

    name: str
    look: Look
    shares: Mapping[int, float]
    texts: Mapping[int, str]


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


def lines(title: str, says: str, found: Sequence[Line], x_title: str) -> str:
    """Shares over places, in one plot, or in a plot for each if there are many lines."""
    if not found:
        return nothing(title, says, "No decoder of this run drafts.")
    last = max(place for line in found for place in line.shares)
    if len(found) <= NOT_TOGETHER:
        return framed(
            title,
            says,
            _shares(found, last, 460, 280, x_title),
            legend([(line.name, line.look, _told(line)) for line in found]),
        )
    each = "".join(
        f'<div class="small"><b>{mark(line.look)}<bdi>{html.escape(line.name)}</bdi></b>'
        f"{_shares([line], last, 220, 130, '')}"
        f'<span class="wb-unseen">{html.escape(_told(line))}</span></div>'
        for line in found
    )
    return framed(
        title,
        says,
        f'<div class="multiples">{each}</div>',
        f'<p class="says">Across: {html.escape(x_title)}.</p>',
    )


def curves(
    title: str,
    says: str,
    found: Sequence[Curve],
    x_title: str,
    y_title: str,
    levels: Sequence[tuple[str, Look, float]] = (),
    decades: float = math.inf,
) -> str:
    """Figures over a setting, with their ranges.

    Args:
        title: the title
        says: a sentence under it
        found: the curves
        x_title: the name of the setting
        y_title: the name of the figure
        levels: (name, look, figure) of decoders without the setting, drawn as dotted lines across
        decades: see `Axis`, of the setting
    """
    at, width, height = sorted({x for curve in found for x in curve.points}), 460, 280
    x = Axis(at, LEFT, width - RIGHT, decades)
    values = [v for curve in found for point in curve.points.values() for v in point]
    y = Axis([*values, *(v for _, _, v in levels)], height - BOTTOM, TOP)
    parts = [grid(x, y, width, height, x_title, y_title, at)]
    parts += [
        path([(x.start, y(value)), (x.end, y(value))], style._replace(dash="dot"), 1.4)
        + mark_at(style, x.end, y(value), 5, f"{name}: {value:.3g}")
        for name, style, value in levels
    ]
    for curve in found:
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
        for c in found
    ]
    listed += [(name, style, f"{value:.3g}") for name, style, value in levels]
    return framed(title, says, picture("".join(parts), width, height), legend(listed))


def heat(
    title: str, says: str, columns: Sequence[str], rows: Mapping[str, Sequence[float | None]]
) -> str:
    """Ratios as a table of coloured cells.

    Ratios above 1 are blue and below 1 orange, the stronger the further from 1.
    """
    head = "".join(f"<th>{html.escape(column)}</th>" for column in ("", *columns))
    body = "".join(
        f"<tr><td>{html.escape(name)}</td>{''.join(map(_warmth, values))}</tr>"
        for name, values in rows.items()
    )
    table = (
        f'<div class="wb-table" tabindex="0" role="region" aria-label="{html.escape(title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    return framed(title, says, "", table)


def _warmth(ratio: float | None) -> str:
    if not ratio:
        return "<td>–</td>"
    share = 60 * min(1.0, abs(math.log2(ratio)))
    colour = COLOURS[0] if ratio > 1 else COLOURS[1]
    return (
        f'<td style="background:color-mix(in srgb, {colour} {share:.0f}%, transparent)">'
        f"{ratio:.2f}</td>"
    )


def _shares(found: Sequence[Line], last: int, width: int, height: int, x_title: str) -> str:
    x = Axis([1, max(2, last)], LEFT, width - RIGHT, math.inf)
    y = Axis([0.0, 1.0], height - (BOTTOM if x_title else 22), TOP, math.inf)
    ticks = range(1, last + 1, max(1, math.ceil(last / (10 if x_title else 5))))
    parts = [grid(x, y, width, height, x_title, "", ticks, [0, 0.5, 1], "{:.0%}")]
    for line in found:
        places = [(x(place), y(share)) for place, share in line.shares.items()]
        parts.append(path(places, line.look))
        parts += [
            mark_at(line.look, a, b, 5, f"{line.name}: {text}")
            for (a, b), text in zip(places, line.texts.values(), strict=True)
        ]
    return picture("".join(parts), width, height)


def _told(line: Line) -> str:
    return ", ".join(f"{share:.0%}" for share in line.shares.values())
