"""The figures of a comparison: rows of results in, Plotly figures out."""

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import plotly.graph_objects as go

from decoders import Fate
from workbench.runs import laps
from workbench.runs.estimates import Row
from workbench.runs.trace import RoundRecord
from workbench.show.figure import COLOURS, canvas, line, look, or_words, whiskers
from workbench.show.quantities import BY_NAME, Quantity
from workbench.show.spread import MISSING, Spread, spread

BARS, WIDE = 260, 320  # heights: four figures in a row, or three
SMALL = "<span style='font-size:11px'>"


def figures(rows: Sequence[Row]) -> list[go.Figure]:
    """All figures of a comparison, in the order of `FIGURES`; memory traffic stands in for energy if no joule was measured."""
    return [draw(rows) for draw in FIGURES]


def bars(rows: Sequence[Row], quantity: Quantity) -> go.Figure:
    """One quantity of every decoder, with its spread over repeats or its range over timings."""
    found = [spread(quantity, row) for row in rows]
    better = f" {SMALL}({quantity.better} is better)</span>" if quantity.better else ""
    figure = _canvas(BARS, quantity.label + better)
    figure.add_bar(
        x=[row.label for row in rows], y=[s and s.mean for s in found], error_y=whiskers(found),
        text=[quantity.show(s.mean) if s else MISSING for s in found], textposition="none",
        marker_color=COLOURS[0], marker_line_width=0, hovertemplate="%{x}: %{text}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(  # the numbers, above the whiskers
        x=[row.label for row in rows], y=[s.mean + s.above if s else 0 for s in found], text=figure.data[0].text, mode="text",
        textposition="top center", textfont_size=11, cliponaxis=False, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    top = max((s.mean + s.above for s in found if s), default=0) or 1
    figure.update_yaxes(range=[0, 1.2 * top], showticklabels=False, showgrid=False)
    figure.update_xaxes(tickangle=-30).update_layout(showlegend=False)
    return figure


speed, perplexity, block_efficiency = (
    partial(bars, quantity=BY_NAME[name]) for name in ("speed", "perplexity", "block_efficiency")
)


def energy(rows: Sequence[Row]) -> go.Figure:
    """Joules if any were measured; else the memory traffic, under its own name."""
    measured = any(r.energy.joules is not None for row in rows for r in row.results)
    return bars(rows, BY_NAME["joules_per_token" if measured else "memory_per_token"])


def round_times(rows: Sequence[Row]) -> go.Figure:
    """Mean milliseconds per round, drafting and verifying; the first round, which also reads the prompt, is left out."""
    figure = _canvas(WIDE, "Time per round", "ms, mean of all rounds but the first")
    parts = (
        ("draft", COLOURS[5], "/", laps.drafting, lambda r: r.draft_seconds),
        ("verify", COLOURS[0], "", laps.verifying, lambda r: r.verify_seconds),
    )
    for name, colour, pattern, timed, seconds in parts:
        each = [_milliseconds(row, timed, seconds) for row in rows]
        figure.add_bar(
            name=name, y=[row.label for row in rows], x=[s and s.mean for s in each], orientation="h", error_x=whiskers(each),
            marker={"color": colour, "line_width": 0, "pattern": {"shape": pattern, "fgcolor": "white", "size": 5}},
            hovertemplate="%{y}: %{x:.2f} ms " + name + "<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack")
    figure.update_yaxes(autorange="reversed")
    return figure


def acceptance_by_position(rows: Sequence[Row]) -> go.Figure:
    """Of the draft tokens that the rule tested, the share kept, by their place in the draft (1 is the first)."""
    figure = _canvas(WIDE, "Acceptance by position in the draft", "position in the draft", "kept / tested")
    for i, row in enumerate(rows):
        tested, kept = Counter[int](), Counter[int]()
        for position, fate in (p for r in row.results for entry in r.alone.rounds for p in draft_positions(entry)):
            tested[position] += fate != Fate.DISCARDED
            kept[position] += fate == Fate.ACCEPTED
        positions = sorted(p for p in tested if tested[p])
        if positions:
            line(
                figure,
                {p: kept[p] / tested[p] for p in positions},
                row.label,
                look(i),
                "%{customdata} kept at position %{x}",
            )
            figure.data[-1].customdata = [f"{kept[p]} of {tested[p]}" for p in positions]
    figure.update_xaxes(dtick=1)
    figure.update_yaxes(range=[0, 1.05], tickformat=".0%")
    return or_words(figure, "no decoder of this run drafts")


def speed_against_perplexity(rows: Sequence[Row]) -> go.Figure:
    """Each decoder a point; up and left is faster and likelier."""
    title = f"Speed against perplexity {SMALL}(↖ up and left is better)</span>"
    figure = _canvas(WIDE, title, "perplexity (lower is likelier text)", "tokens/s")
    widest = fastest = 0.0
    for i, row in enumerate(rows):
        fast, likely = spread(BY_NAME["speed"], row), spread(BY_NAME["perplexity"], row)
        if fast and likely:
            widest, fastest = max(widest, likely.mean), max(fastest, fast.mean)
            figure.add_scatter(
                name=row.label, x=[likely.mean], y=[fast.mean], mode="markers+text", text=[row.label],
                textposition="middle right", cliponaxis=False, showlegend=False,
                marker={"color": look(i).colour, "symbol": look(i).symbol, "size": 13},
                error_x=whiskers([likely]), error_y=whiskers([fast]),
                hovertemplate="perplexity %{x:.2f}, %{y:.0f} tokens/s<extra>" + row.label + "</extra>",
            )  # fmt: skip
    figure.update_xaxes(range=[0, 1.4 * widest or 1])
    figure.update_yaxes(range=[0, 1.15 * fastest or 1])
    return figure


FIGURES = (speed, perplexity, energy, block_efficiency, speed_against_perplexity, round_times, acceptance_by_position)


def draft_positions(round_: RoundRecord) -> list[tuple[int, Fate]]:
    """(place in the draft from 1, fate) of every draft token of a round, by its depth among the tokens tried."""
    drafted = [t for t in round_.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)]
    depth: dict[int, int] = {}
    for trial in sorted(drafted, key=lambda t: t.node):  # parents have lower ids
        depth[trial.node] = depth.get(trial.parent, 0) + 1
    return [(depth[t.node], Fate(t.fate)) for t in drafted]


def _canvas(height: int, title: str, x: str = "", y: str = "") -> go.Figure:
    """With its title above it and its legend below."""
    figure = canvas(x, y, title=title, height=height)
    return figure.update_layout(
        margin={"l": 12, "r": 12, "t": 44, "b": 12}, legend={"y": -0.25, "yanchor": "top", "font_size": 12}, bargap=0.35
    )


def _milliseconds(row: Row, timed: laps.Seconds, seconds: Callable[[RoundRecord], float]) -> Spread | None:
    """Of a round: from all timings of a single repeat, with their range; the mean of several repeats. A run of an earlier version only
    has the seconds of its rounds."""
    found = [laps.estimate(r, lambda s: 1e3 * s, timed) for r in row.results if r.laps]
    if len(row.results) == 1 and found and found[0]:
        return Spread(found[0].value, range=found[0] if found[0].laps > 1 else None)
    values = [e.value for e in found if e] or [
        1e3 * seconds(r) for result in row.results for r in result.alone.rounds[1:]
    ]
    return Spread(statistics.fmean(values)) if values else None
