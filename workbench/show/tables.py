"""Runs as tables and sentences, and a comparison's outcome in one line (verdict).

There are tables with a row per decoder, tables of two runs side by side, a batch's tables as in its
paper, and the settings and the machine of a run. Counted figures carry the verdict: they are the
same on every machine. The exact decoder with the fewest passes is in it; others write another text,
which no figure makes better.
"""

import html
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from decoders.settings import Law
from workbench.kinds.registry import study_of
from workbench.runs.figures import Row, label, number, rows, unsteady
from workbench.runs.record import Run
from workbench.show.laws import claim_in
from workbench.show.quantities import (
    BATCH_QUANTITIES,
    BY_NAME,
    MISSING,
    QUANTITIES,
    UNSURE,
    Quantity,
    shown,
    spread,
)
from workbench.studies import study
from workbench.studies.settings import counted, known, method_of

PLACE = ["decoder", "batch", "scheme"]  # a decoder's row in a comparison has only the first
ENERGY = BY_NAME["joules_per_token"]
# What the three charts of a comparison show.
CHARTED = [
    BY_NAME[name] for name in ("speed", ENERGY.name, "memory_per_token", "perplexity", "repetition")
]


@dataclass(frozen=True)
class Table:
    """Texts under their heads; a row has one text for each head."""

    heads: list[str]
    rows: list[list[str]]


def markdown(table: Table) -> str:
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in (table.heads, [":---", *["---:"] * (len(table.heads) - 1)], *table.rows)
    )


def markup(table: Table) -> str:
    """The table as HTML, its texts escaped, in a box that scrolls."""
    return (
        f'<div class="wb-table" tabindex="0" role="region" aria-label="Figures">{bare(table)}</div>'
    )


def bare(table: Table) -> str:
    head = "".join(f"<th>{html.escape(h)}</th>" for h in table.heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


# ---- Figures of a run


def figures(run: Run, each: Sequence[Quantity] = ()) -> Table:
    """The figures of a run, with ± over repeats.

    A comparison has a row for each decoder, any other kind one for each decoder, batch size and
    scheme. Energy has a column only if any was measured.

    Args:
        each: the figures, all if empty
    """
    lines, each = rows(run.results), each or quantities(run)
    width = 1 if study_of(run.kind).by_decoder else len(PLACE)
    if not any(shown(ENERGY, row) != MISSING for row in lines):
        each = [quantity for quantity in each if quantity != ENERGY]
    return Table(
        [*PLACE[:width], *(quantity.label for quantity in each)],
        [[*_place(row)[:width], *(shown(quantity, row) for quantity in each)] for row in lines],
    )


def side_by_side(a: Run, b: Run) -> Table:
    width = 1 if study_of(a.kind).by_decoder and study_of(b.kind).by_decoder else len(PLACE)
    first, second = (
        {
            (*_place(row)[:width], quantity.label): shown(quantity, row)
            for quantity in quantities(run)
            for row in rows(run.results)
        }
        for run in (a, b)
    )
    lines = [[*key, first[key], second[key]] for key in first if key in second]
    shared = [line for line in lines if line[-2:] != [MISSING, MISSING]]
    return Table([*PLACE[:width], "figure", "A", "B"], shared)


def quantities(run: Run) -> Sequence[Quantity]:
    return BATCH_QUANTITIES if study_of(run.kind).batches else QUANTITIES


def _place(row: Row) -> list[str]:
    return [
        row.label,
        str(row.batch_size),
        study.scheme_label(row.decoder, row.batch_size, row.scheme),
    ]


def notes(run: Run) -> list[str]:
    """What a reader of the figures must know; rows of which the same is true share a sentence."""
    lines, said = rows(run.results), defaultdict[str, list[Row]](list)
    for row in lines:
        each = [f"Unsteady: {reason}." for reason in unsteady(row)]
        each += [remark for result in row.results for remark in result.remarks]
        for remark in dict.fromkeys(each):
            said[remark].append(row)
    how = f"{UNSURE} marks speeds that cannot be trusted." if any(map(unsteady, lines)) else ""
    if all(len(result.laps) < 2 for result in run.results if not result.errors):
        how = f"{how} Timed once: speeds may differ from run to run.".strip()
    named = study_of(run.kind).by_decoder
    remarks = [
        f"{', '.join(row.label for row in some)}: {remark}"
        if named
        else f"{len(some)} of {len(lines)} rows: {remark}"
        for remark, some in said.items()
    ]
    return [how, *remarks] if how else remarks


# ---- Settings and environment of a run


def facts(run: Run) -> list[tuple[str, str]]:
    values = {
        study_of(run.kind).named: run.title,
        "created": run.created,
        **run.settings,
        **run.environment,
    }
    if run.study.get("start"):
        values["branched from"] = [
            f"run {step['run']}, {label(step['decoder'])}, "
            f"after {counted(step['at'], 'token')}: {step['chosen']!r}"
            for step in run.study["start"]["trail"]
        ]
    return [(name, words(value)) for name, value in values.items() if value not in ({}, None)]


def words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {words(item)}" for name, item in value.items() if item is not None
        )
    if isinstance(value, list):
        return ", ".join(map(words, value))
    return str(value)


SHORTEST = 16  # tokens of a text from which passes are worth comparing
FASTER = 1.05  # times greedy
WORTH_SAYING = 1.2  # tokens per pass below which drafts are not worth a sentence


def verdict(run: Run, settled: bool = True) -> str:
    """The outcome in one line; "" if there is nothing to tell.

    Args:
        run: the comparison
        settled: whether its timing is over; before that the line has no speed
    """
    lines = [row for row in rows(run.results) if row.first.error is None]
    drafted = [row for row in lines if _drafts(row) and _efficiency(row) >= WORTH_SAYING]
    exact = [row for row in drafted if claim_in(run.settings, row.decoder).exact]
    rough = settled and any(map(unsteady, lines))
    doubt = "Speeds are rough: this machine is busy, or its timings differ." if rough else ""
    if not drafted:
        return doubt
    best = max(exact or drafted, key=_efficiency)
    tokens, passes = (int(number(best.first, n) or 0) for n in ("new_tokens", "target_calls"))
    says = f"{counted(passes, 'pass', 'passes')} instead of {tokens:,}"
    if exact:
        same = "same text" if run.settings.get("temperature") == 0 else "same kind of text"
        says = f"{best.label}: the {same}, {says}"
    else:
        says = f"{best.label}: {says}, and not the large model’s own distribution"
    if rough:
        return f"{says}. {doubt}"
    return f"{says}{_times(best) if settled else ''}."


def _drafts(row: Row) -> bool:
    if not known(row.decoder):
        return False
    drafts = method_of(row.decoder).law != Law.BEAM_SAMPLING and row.decoder not in PLAIN
    return drafts and (number(row.first, "new_tokens") or 0) >= SHORTEST


PLAIN = ("greedy", "multinomial", "beam_search", "beam_sampling")


def _efficiency(row: Row) -> float:
    return number(row.first, "block_efficiency") or 0.0


def _times(row: Row) -> str:
    """ ", 1.6 times as fast here", if greedy ran beside it."""
    ratio = spread(BY_NAME["x_greedy"], row)
    if ratio is None:
        return ""
    return (
        f", {ratio.mean:.1f} times as fast here" if ratio.mean >= FASTER else ", and no faster here"
    )
