"""The charts of a comparison: rows of results in, HTML out."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from decoders import Fate
from workbench.runs import laps
from workbench.runs.estimates import Row, unsteady
from workbench.runs.trace import RoundRecord
from workbench.show import laws, plots
from workbench.show.bars import Bar, BarChart
from workbench.show.looks import look_of
from workbench.show.quantities import BY_NAME, Quantity, significant
from workbench.show.spread import Spread, figure, marked, range_text, spread


def charts(rows: Sequence[Row], settings: Mapping[str, Any]) -> str:
    """All charts of a comparison, as HTML.

    If no joule was measured, memory traffic takes the place of energy.
    """
    each = [
        speed(rows).html(), perplexity(rows, settings).html(), energy(rows).html(),
        bars(rows, BY_NAME["block_efficiency"]).html(), round_times(rows).html(),
        speed_against_perplexity(rows), acceptance_by_position(rows),
    ]  # fmt: skip
    return f'<div class="wb-charts">{"".join(each)}</div>'


def bars(
    rows: Sequence[Row], quantity: Quantity, faint: Sequence[Row] = (), says: str = ""
) -> BarChart:
    """One quantity of every decoder, with its deviation over repeats or its range over timings.

    Args:
        rows: the decoders
        quantity: the quantity
        faint: the rows whose bars are hatched
        says: a sentence under the title
    """
    each = []
    for row in rows:
        style, found = look_of(row.decoder), spread(quantity, row)
        if found is None:
            each.append(Bar(row.label, style))
            continue
        text = detail = figure(quantity, row, not unsteady(row))
        if found.range:
            detail += f", {range_text(quantity, found.range)}"
        low, high = found.ends or (None, None)
        each.append(Bar(row.label, style, (found.mean,), text, detail, low, high, row in faint))
    return BarChart(quantity.label, each, quantity.better, says)


def speed(rows: Sequence[Row]) -> BarChart:
    quantity, says = BY_NAME["speed"], "New tokens per second of computing"
    if any(found.range for row in rows if (found := spread(quantity, row)) is not None):
        says += ", in the quickest of several timings; the line is their range"
    return bars(rows, quantity, says=f"{says}.")


def perplexity(rows: Sequence[Row], settings: Mapping[str, Any]) -> BarChart:
    """The perplexities; bars of decoders that share a law are hatched.

    Their texts differ by chance alone, which a ranking would hide.
    """
    says, faint = "Lower means likelier text.", list[Row]()
    for decoders in laws.by_chance(settings, [row.decoder for row in rows]):
        group = [row for row in rows if row.decoder in decoders]
        faint += group
        *names, last = (row.label for row in group)
        says += (
            f" Hatched bars: {', '.join(names)} and {last} draw from the same distribution, so "
            "differences between them are due to chance."
        )
    return bars(rows, BY_NAME["perplexity"], faint, says)


def energy(rows: Sequence[Row]) -> BarChart:
    """Joules if any were measured; else the memory traffic, under its own name."""
    if any(r.energy.joules is not None for row in rows for r in row.results):
        return bars(rows, BY_NAME["joules_per_token"])
    return bars(
        rows, BY_NAME["memory_per_token"], says="Weights and cache read; energy was not measured."
    )


def round_times(rows: Sequence[Row]) -> BarChart:
    """Mean milliseconds per round, drafting (hatched) and verifying.

    The first round, which also reads the prompt, is left out.
    """
    each = []
    for row in rows:
        draft = _milliseconds(row, laps.drafting, lambda r: r.draft_seconds)
        verify = _milliseconds(row, laps.verifying, lambda r: r.verify_seconds)
        if draft is None and verify is None:
            each.append(Bar(row.label, look_of(row.decoder)))
            continue
        first, second = (part.mean if part else 0.0 for part in (draft, verify))
        drafting, verifying = (
            marked(significant(part), not unsteady(row)) for part in (first, second)
        )
        whole = _milliseconds(
            row, laps.drafting_and_verifying, lambda r: r.draft_seconds + r.verify_seconds
        )
        each.append(
            Bar(
                row.label, look_of(row.decoder), (first, second) if first else (second,),
                f"{drafting} + {verifying}" if first else verifying,
                f"drafting {drafting} ms, verifying {verifying} ms",
                *((whole and whole.ends) or ()),
            )
        )  # fmt: skip
    return BarChart(
        "ms per round",
        each,
        None,
        "Draft (hatched) + large model; the first round, which reads the prompt, is left out.",
    )


def speed_against_perplexity(rows: Sequence[Row]) -> str:
    """Each decoder as a point; up and left is faster and likelier."""
    points = []
    for row in rows:
        fast, likely = spread(BY_NAME["speed"], row), spread(BY_NAME["perplexity"], row)
        if fast and likely:
            quick = marked(significant(fast.mean), not unsteady(row))
            points.append(
                plots.Point(
                    row.label,
                    look_of(row.decoder),
                    likely.mean,
                    fast.mean,
                    f"{quick} tokens/s, perplexity {likely.mean:.2f}",
                    likely.ends,
                    fast.ends,
                )
            )
    return plots.scatter(
        "Speed against perplexity",
        "Up and left is better: faster, and likelier text.",
        points,
        "perplexity",
        "tokens/s",
    )


def acceptance_by_position(rows: Sequence[Row]) -> str:
    """The share of the tested draft tokens that was kept, by place in the draft (from 1)."""
    return plots.lines(
        "Acceptance by position in the draft",
        "The share of the tested draft tokens that was kept, at each place in the draft.",
        [line for row in rows if (line := acceptance(row)) is not None],
        "place in the draft",
    )


def acceptance(row: Row) -> plots.Line | None:
    """A decoder's shares; None if none of its drafts was tested."""
    tested, kept = Counter[int](), Counter[int]()
    for position, fate in (
        p for r in row.results for entry in r.alone.rounds for p in draft_positions(entry)
    ):
        tested[position] += fate != Fate.DISCARDED
        kept[position] += fate == Fate.ACCEPTED
    positions = sorted(p for p in tested if tested[p])
    if not positions:
        return None
    return plots.Line(
        row.label,
        look_of(row.decoder),
        {p: kept[p] / tested[p] for p in positions},
        {p: f"{kept[p]} of {tested[p]} kept at place {p}" for p in positions},
    )


def draft_positions(round_: RoundRecord) -> list[tuple[int, Fate]]:
    """(place in the draft from 1, fate) of every draft token of a round.

    The place is its depth among the tokens tried.
    """
    drafted = [t for t in round_.trials if t.fate in (Fate.ACCEPTED, Fate.REJECTED, Fate.DISCARDED)]
    depth: dict[int, int] = {}
    for trial in sorted(drafted, key=lambda t: t.node):  # parents have lower ids
        depth[trial.node] = depth.get(trial.parent, 0) + 1
    return [(depth[t.node], Fate(t.fate)) for t in drafted]


def _milliseconds(
    row: Row, timed: laps.Figure, seconds: Callable[[RoundRecord], float]
) -> Spread | None:
    """Milliseconds per round.

    Of a single repeat they are an estimate from all timings, with its range; of several, the mean.
    A run of an earlier version only has the seconds of its rounds.
    """
    found = [laps.estimate(r, lambda s: 1e3 * s, timed) for r in row.results if r.laps]
    if len(row.results) == 1 and found and found[0]:
        return Spread(found[0].value, range=found[0] if found[0].laps > 1 else None)
    values = [e.value for e in found if e] or [
        1e3 * seconds(r) for result in row.results for r in result.alone.rounds[1:]
    ]
    return Spread(fmean(values)) if values else None
