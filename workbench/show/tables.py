"""Runs as tables and sentences: a row per decoder, two runs side by side, the paper's tables of a batch, what a run was measured on."""

import html
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.runs.estimates import BatchFigures, Row, label, rows, unsteady
from workbench.runs.record import Run
from workbench.show.quantities import BATCH_QUANTITIES, QUANTITIES, Quantity, percent, significant, times
from workbench.show.spread import MISSING, UNSURE, padding_ratio, shown
from workbench.studies.batch import Batch
from workbench.studies.comparison import Comparison
from workbench.studies.draw import Draw
from workbench.studies.schemes import ALONE, BASELINE, BASELINES, SCHEMES, baseline_scheme, scheme_label
from workbench.studies.text import counted


@dataclass(frozen=True)
class Table:
    """Texts under their heads; a row has one text for each head."""

    heads: list[str]
    rows: list[list[str]]


def markdown(table: Table) -> str:
    """The table as Markdown: the first column to the left, figures to the right."""
    marks = [":---", *["---:"] * (len(table.heads) - 1)]
    lines = [table.heads, marks, *table.rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def markup(table: Table) -> str:
    """The table as HTML, its texts escaped."""
    head = "".join(f"<th>{html.escape(h)}</th>" for h in table.heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f'<div class="wb-table" tabindex="0" role="region" aria-label="Figures"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# ---- Figures of a run


def figures(run: Run) -> Table:
    """A row for each decoder of a comparison; of any other kind for each decoder, batch size and scheme. Figures have ± over repeats."""
    return by_decoder(rows(run.results)) if run.kind == Comparison.kind else by_batch(rows(run.results), _of_kind(run))


def by_decoder(rows: Sequence[Row]) -> Table:
    """A row for each decoder, a column for each figure of a comparison; energy only if any was measured."""
    kept = _columns(rows, QUANTITIES)
    return Table(
        ["decoder", *(name for name, _ in kept)],
        [[row.label, *(column[i] for _, column in kept)] for i, row in enumerate(rows)],
    )


def by_batch(rows: Sequence[Row], quantities: Sequence[Quantity] = BATCH_QUANTITIES) -> Table:
    """A row for each decoder, batch size and scheme; energy only if any was measured."""
    kept = _columns(rows, quantities)
    return Table(
        ["decoder", "batch", "scheme", *(name for name, _ in kept)],
        [[*_place(row), *(column[i] for _, column in kept)] for i, row in enumerate(rows)],
    )  # fmt: skip


def _columns(rows: Sequence[Row], quantities: Sequence[Quantity]) -> list[tuple[str, list[str]]]:
    """Each figure of all rows under its name; energy only if any was measured."""
    found = [(q, [shown(q, row) for row in rows]) for q in quantities]
    return [(q.label, column) for q, column in found if q.name != "joules_per_token" or {*column} - {MISSING}]


def side_by_side(a: Run, b: Run) -> Table:
    """The figures of two runs of one kind next to each other: of comparisons a row for each figure that either of them has, of any other
    kind for each that both have, those of one figure together."""
    short = a.kind == b.kind == Comparison.kind
    first, second = (dict(_figures(run, short)) for run in (a, b))
    found = [[*key, first.get(key, MISSING), second.get(key, MISSING)] for key in dict.fromkeys([*first, *second])]
    if short:
        return Table(["decoder", "figure", "A", "B"], [row for row in found if row[-2:] != [MISSING, MISSING]])
    figures = [quantity.label for quantity in _of_kind(a)]
    both = sorted((row for row in found if MISSING not in row[-2:]), key=lambda row: figures.index(row[3]))
    return Table(["decoder", "batch", "scheme", "figure", "A", "B"], both)


def _figures(run: Run, short: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    for row in rows(run.results):
        for quantity in _of_kind(run):
            place = [row.label] if short else _place(row)
            yield (*place, quantity.label), shown(quantity, row)


def _of_kind(run: Run) -> Sequence[Quantity]:
    return BATCH_QUANTITIES if run.kind == Batch.kind else QUANTITIES


def _place(row: Row) -> list[str]:
    return [row.label, str(row.batch_size), scheme_label(row.decoder, row.batch_size, row.scheme)]


def notes(run: Run) -> list[str]:
    """What a reader of the run's speeds must know: how they were timed, and each doubt and remark with the rows it belongs to."""
    found = rows(run.results)
    doubts, remarks = defaultdict[str, list[Row]](list), defaultdict[str, list[Row]](list)
    for row in found:
        for reason in unsteady(row):
            doubts[reason].append(row)
        for remark in dict.fromkeys(remark for result in row.results for remark in result.remarks):
            remarks[remark].append(row)

    def named(some: Sequence[Row]) -> str:
        if len(some) == len(found) > 1:
            return "all"
        return ", ".join(r.label for r in some) if run.kind == Comparison.kind else f"{len(some)} of {len(found)} rows"

    laps = {len(result.laps) for result in run.results if not result.errors}
    how = [f"{UNSURE} marks speeds that cannot be trusted."] if doubts else []
    how += ["Timed once: speeds may differ from run to run."] if max(laps, default=0) < 2 else []
    return [
        *([" ".join(how)] if how else []),
        *(f"Unsteady ({named(some)}): {reason}." for reason, some in doubts.items()),
        *(f"{named(some)}: {remark}" for remark, some in remarks.items()),
    ]


# ---- What a run was asked, and what it was measured on


def facts(run: Run) -> list[tuple[str, str]]:
    """Prompt, settings and environment of a run as (name, value) in words, as text."""
    name = {Comparison.kind: "prompt", Draw.kind: "prompt", Batch.kind: "prompts"}.get(run.kind, "title")
    found = {name: run.title, "created": run.created, **run.settings, **run.environment}
    if run.study.get("start"):
        found["branched from"] = [
            f"run {step['run']}, {label(step['decoder'])}, after {counted(step['at'], 'token')}: {step['chosen']!r}"
            for step in run.study["start"]["trail"]
        ]
    return [(name, words(value)) for name, value in found.items() if value not in ({}, None)]


def words(value: Any) -> str:
    """A setting or a fact of the environment as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {words(item)}" for name, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(map(words, value))
    return str(value)


# ---- Batches


def verdict(run: Run) -> str:
    """Whether all outputs are the tokens that they must be, and what failed, in a sentence."""
    compared = [r.agreement for r in run.results if r.agreement is not None]
    differing = sum(a.differing for a in compared)
    words = ["Identical tokens in every scheme and at every batch size." if compared else "Too little to compare."]
    if differing:
        words = [
            f"{counted(differing, 'output differs', 'outputs differ')} from the first of their decoder: near-ties that passes of "
            "other shapes round the other way."
        ]
    broken = [r.error for r in run.results if r.error]
    failed = [e for r in run.results if not r.error for e in r.errors]
    for what, errors in (("measurement", broken), ("request", failed)):
        if errors:
            words.append(f"{counted(len(errors), what)} failed: {errors[0]}")
    return " ".join(words)


def findings(run: Run) -> list[str]:
    """What was found, in sentences: the tokens, and the acceptance lengths of each decoder's samples."""
    found = BatchFigures(run)
    return [verdict(run), *(f"{label(d)}: {acceptance(found, d)}" for d in found.decoders if found.mean_acceptances(d))]


def acceptance(figures: BatchFigures, decoder: str) -> str:
    """How much the samples' mean acceptance lengths differ, in a sentence; "" if none is known."""
    means = figures.mean_acceptances(decoder)
    if not means:
        return ""
    deviation = f", deviation {statistics.stdev(means):.2f}" if len(means) > 1 else ""
    return (
        f"{statistics.fmean(means):.2f} tokens per round, mean of {counted(len(means), 'sample')} that range from "
        f"{min(means):.2f} to {max(means):.2f}{deviation}."
    )


def paper_table(figures: BatchFigures, decoder: str, decoding: bool) -> Table:
    """Tables 2-4 of ems-sd.txt for one decoder: tokens/s, and in brackets the speed-up over greedy, for dynamic batches over greedy's own.

    decoding    leave the reading of prompts out, as the paper does; dynamic batches have no such figure
    """
    schemes = figures.schemes(decoder, decoding)
    bases = dict.fromkeys(map(baseline_scheme, schemes)) or [ALONE]
    heads = [
        "batch",
        *(BASELINES[base] for base in bases),
        *(SCHEMES[s].label for s in schemes),
        "padding ratio",
        "slowest prompt",
    ]
    found = []
    for size in figures.sizes:
        speeds = [_with_speed_up(figures, (decoder, size, scheme, decoding)) for scheme in schemes]
        ratio, least = padding_ratio(figures, decoder, size), figures.least_acceptance(decoder, size)
        found.append(
            [
                str(size), *(_significant(figures.speed(BASELINE, size, base, decoding)) for base in bases), *speeds,
                MISSING if ratio is None else percent(ratio), MISSING if least is None else f"{least:.2f}",
            ]
        )  # fmt: skip
    return Table(heads, found)


def _with_speed_up(figures: BatchFigures, of: tuple[str, int, str, bool]) -> str:
    speed, ratio = figures.speed(*of), figures.times_greedy(*of)
    return f"{significant(speed)} ({MISSING if ratio is None else times(ratio)})" if speed else ""


def _significant(value: float | None) -> str:
    return MISSING if value is None else significant(value)
