"""The charts of a comparison: rows of results in, figures of Plotly out."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from statistics import fmean
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from decoders import Fate
from decoders.trace import DRAFTED
from workbench.runs import timing
from workbench.runs.figures import Row, label, unsteady
from workbench.runs.store import ENERGY_ON_GPU
from workbench.show import laws
from workbench.show.looks import look_of
from workbench.show.plots import GREY, canvas, line, or_words, plane, whiskers
from workbench.show.quantities import (
    BY_NAME,
    Quantity,
    figure,
    marked,
    percent,
    significant,
    spread,
)

BAR = "#7c8494"  # the colours belong to the fates of tokens
HATCHED = {"shape": "/", "fgcolor": BAR, "bgcolor": "rgba(0,0,0,0)", "size": 5, "solidity": 0.35}
BAR_PIXELS, AROUND_PIXELS, CAPTION = 30, 62, 46
LOOPS = "Lower is likelier to the model. Loops score well too: beside it, the share that repeats."
SAME = "Hatched: one distribution, so they differ by chance alone."


def charts(rows: Sequence[Row], settings: Mapping[str, Any]) -> list[go.Figure]:
    three = [speed(rows), energy(rows), perplexity(rows, settings)]
    top = max(chart.layout.margin.t for chart in three)
    height = max(chart.layout.height for chart in three)
    # One line of bars for each decoder, across all three.
    return [chart.update_layout(margin_t=top, height=height) for chart in three]


def details(rows: Sequence[Row]) -> list[go.Figure]:
    return [draw(rows) for draw in DETAILS]


def bars(
    rows: Sequence[Row],
    quantity: Quantity,
    title: str,
    says: str,
    more: Callable[[Row], str] = lambda row: "",
) -> go.Figure:
    """One quantity of every decoder, the first on top, with its range or deviation.

    Args:
        rows: the decoders
        quantity: the quantity
        title: the name of the chart
        says: a line under it
        more: words after the figure of a row
    """
    values = [spread(quantity, row) for row in rows]
    texts = [figure(quantity, row) + more(row) for row in rows]
    chart = _titled(title, says, len(rows))
    chart.add_bar(
        x=[value.mean if value else None for value in values],
        y=[row.label for row in rows],
        orientation="h",
        marker={"color": BAR},
        text=texts,
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{text}<extra></extra>",
        error_x=whiskers(
            (value.below if value else 0 for value in values),
            (value.above if value else 0 for value in values),
        ) if any(value and value.below + value.above for value in values) else None,
    )  # fmt: skip
    longest = max([value.mean + value.above for value in values if value] or [1.0])
    room = 1.2 + max(map(len, texts), default=0) / 12  # for the figure after the longest bar
    chart.update_xaxes(range=[0, longest * room], showgrid=False, showticklabels=False)
    return or_words(chart, "No decoder of this run has it.")


def speed(rows: Sequence[Row]) -> go.Figure:
    says = "New tokens per second"
    if any(len(r.laps) > 1 for row in rows for r in row.results):
        says += "; the line is the range of several timings"
    return bars(rows, BY_NAME["speed"], "Speed", f"{says}.")


def energy(rows: Sequence[Row]) -> go.Figure:
    """Joules a token; where none were measured, the reason, and the memory read for a token.

    Beside these stand the joules that a GPU took once.
    """
    measured = [r.energy for row in rows for r in row.results if r.energy.joules is not None]
    if measured:
        sources = "; ".join(dict.fromkeys(each.source for each in measured))
        says = f"Joules per token, {sources}."
        return bars(rows, BY_NAME["joules_per_token"], "Energy", says)
    why = next((r.energy.source for row in rows for r in row.results), "not measured")
    return bars(
        rows, BY_NAME["memory_per_token"], "Energy",
        f"{why[:1].upper()}{why[1:]}. Instead: memory read per token. {on_gpu()}",
    )  # fmt: skip


@cache
def on_gpu() -> str:
    once = json.loads(ENERGY_ON_GPU.read_text("utf-8"))
    each = (f"{label(name)} {joules:.2f}" for name, joules in once["joules_per_token"].items())
    where = f"{once['card']}, {once['date']}, {once['pair']}"
    return f"Joules per token on an {where}: {', '.join(each)}."


def perplexity(rows: Sequence[Row], settings: Mapping[str, Any]) -> go.Figure:
    """The perplexities and repetitions; bars of decoders that share a distribution are hatched.

    Their texts differ by chance alone, which a ranking would hide.
    """
    repetition = BY_NAME["repetition"]

    def repeated(row: Row) -> str:
        share = spread(repetition, row)
        return "" if share is None else f" · {percent(share.mean)}"

    groups = laws.by_chance(settings, [row.decoder for row in rows])
    alike = {decoder for group in groups for decoder in group}
    says = f"{LOOPS} {SAME}" if alike else LOOPS
    chart = bars(rows, BY_NAME["perplexity"], "Perplexity", says, repeated)
    shapes = [HATCHED["shape"] if row.decoder in alike else "" for row in rows]
    return chart.update_traces(
        marker_pattern={**HATCHED, "shape": shapes}, selector={"type": "bar"}
    )


def round_times(rows: Sequence[Row]) -> go.Figure:
    """Mean milliseconds per round, drafting (hatched) and verifying.

    The first round, which also reads the prompt, is left out.
    """
    chart = _titled(
        "ms per round", "Draft (hatched) and large model, without the first round.", len(rows)
    )
    parts = (
        (timing.drafting, "draft", HATCHED),
        (timing.verifying, "large model", {"shape": ""}),
    )
    for timed, name, pattern in parts:
        times = [_milliseconds(row, timed) for row in rows]
        chart.add_bar(
            x=times,
            y=[row.label for row in rows],
            orientation="h",
            marker={"color": BAR, "pattern": pattern},
            name=name,
            text=[
                marked(significant(each), not unsteady(row)) if each else ""
                for each, row in zip(times, rows, strict=True)
            ],
            hovertemplate="%{y}: %{text} ms, " + name + "<extra></extra>",
        )
    chart.update_layout(barmode="stack", showlegend=False)
    return or_words(chart)


def speed_against_perplexity(rows: Sequence[Row]) -> go.Figure:
    chart = plane("Speed against perplexity", "perplexity", "tokens/s")
    both = [(r, spread(BY_NAME["speed"], r), spread(BY_NAME["perplexity"], r)) for r in rows]
    points = [(row, fast, likely) for row, fast, likely in both if fast and likely]
    means = [likely.mean for *_, likely in points]
    for row, fast, likely in points:
        # From the outer thirds a name goes inwards: on a phone it ended beyond the edge.
        third = (likely.mean - min(means)) / ((max(means) - min(means)) or 1.0)
        side = "right" if third < 1 / 3 else "left" if third > 2 / 3 else "center"
        quick = marked(significant(fast.mean), not unsteady(row))
        chart.add_scatter(
            x=[likely.mean], y=[fast.mean], mode="markers+text", text=[row.label],
            textposition=f"top {side}", name=row.label,
            marker={"color": BAR, "size": 11, "symbol": look_of(row.decoder).symbol},
            hovertemplate=f"{quick} tokens/s, perplexity {likely.mean:.2f}<extra></extra>",
        )  # fmt: skip
    chart.update_layout(showlegend=False).update_xaxes(automargin=True)
    return or_words(chart)


def acceptance_by_position(rows: Sequence[Row]) -> go.Figure:
    chart = plane("Acceptance by place", "place in the draft", "kept")
    for row in rows:
        tested, accepted = acceptance(row)
        shares = {
            place: accepted[place] / tested[place] for place in sorted(tested) if tested[place]
        }
        if shares:
            line(chart, shares, row.label, look_of(row.decoder), "%{y:.0%} kept at place %{x}")
    chart.update_yaxes(range=[0, 1.04], tickformat=".0%").update_xaxes(dtick=1)
    return or_words(chart, "No decoder of this run drafts.")


def acceptance(row: Row) -> tuple[Counter[int], Counter[int]]:
    """For each place in the draft, the tokens tested there, and those kept.

    The place of a token is its depth, from 1, among the tokens tried in a round.
    """
    tested, accepted = Counter[int](), Counter[int]()
    for entry in (entry for result in row.results for entry in result.alone.rounds):
        depth: dict[int, int] = {}
        drafted = [trial for trial in entry.trials if trial.fate in DRAFTED]
        for trial in sorted(drafted, key=lambda t: t.node):  # parents have lower ids
            place = depth[trial.node] = depth.get(trial.parent, 0) + 1
            tested[place] += trial.fate != Fate.DISCARDED
            accepted[place] += trial.fate == Fate.ACCEPTED
    return tested, accepted


def _titled(title: str, says: str, count: int) -> go.Figure:
    wrapped = wrap(says, CAPTION)
    says, lines = "<br>".join(wrapped), len(wrapped)
    chart = canvas(height=AROUND_PIXELS + 14 * lines + BAR_PIXELS * max(1, count))
    chart.update_layout(
        title={
            "text": title, "font": {"size": 15, "weight": 650}, "x": 0, "xanchor": "left", "y": 1,
            "pad": {"t": 6},
            "yanchor": "top", "subtitle": {"text": says, "font": {"size": 13, "color": GREY}},
        },
        margin={"l": 8, "r": 8, "t": 44 + 18 * lines, "b": 4}, bargap=0.35, font_size=13,
    )  # fmt: skip
    gap = {"ticks": "outside", "ticklen": 6, "tickcolor": "rgba(0,0,0,0)"}
    return chart.update_yaxes(autorange="reversed", showgrid=False, title=None, **gap)


def _milliseconds(row: Row, timed: timing.LapFigure) -> float | None:
    """Milliseconds per round, mean over repeats; None for runs that did not time their rounds."""
    seconds = [each for r in row.results if (each := timed(r.laps)) is not None]
    return 1e3 * fmean(seconds) if seconds else None


DETAILS = (acceptance_by_position, round_times, speed_against_perplexity)
