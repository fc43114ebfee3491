"""Two runs of one kind compared: the settings that differ, then decoder by decoder their texts with the differences marked, and their
figures with ratios."""

import html
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import chain
from typing import Any

from decoders import catalog
from workbench.runs.estimates import Row, rows, unsteady
from workbench.runs.record import Run
from workbench.runs.trace import TokenRecord
from workbench.show.looks import look_of, mark
from workbench.show.quantities import QUANTITIES, Quantity, times
from workbench.show.spread import MISSING, figure, spread
from workbench.show.tables import Table, markup, words
from workbench.studies.comparison import Comparison
from workbench.studies.text import counted

SIDES = ("A", "B")
BOTH = "A and B"
LONGEST = 2000  # tokens of texts that are compared piece by piece; of longer ones only where they part
ALIKE = "Their settings and machines are the same."
RATIO = "B / A"
WITHIN = "no difference beyond the ranges"


def differing(a: Run, b: Run) -> Table:
    """What was asked of two runs and what they ran on, where that differs; those of single decoders by their ids."""
    first, second = (dict(_named(run, {*a.settings} & {*b.settings})) for run in (a, b))
    names = [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]
    return Table(
        ["setting", *SIDES],
        [[name, *(words(side[name]) if name in side else MISSING for side in (first, second))] for name in names],
    )


def _named(run: Run, shared: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Every setting and every fact of the environment under one name, "mtad.beams"; of decoders only those of both runs."""
    asked = {"prompt": run.study.get("prompt")} if run.kind == Comparison.kind else {"prompts": run.title}
    for name, value in chain(asked.items(), run.settings.items(), run.environment.items()):
        if name in catalog and name not in shared:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def parts(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, str]]:
    """Two texts, given in pieces, as (part of a, part of b) in order: those that are equal and those that differ."""
    if max(len(a), len(b)) > LONGEST:
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        spans = [(0, same, 0, same), (same, len(a), same, len(b))]
    else:
        spans = [span[1:] for span in SequenceMatcher(None, a, b).get_opcodes()]
    return [("".join(a[i:j]), "".join(b[k:n])) for i, j, k, n in spans]


def marked(pieces: Sequence[str], others: Sequence[str], side: str) -> str:
    """The text of one side, escaped, with what the other side lacks marked."""
    at = SIDES.index(side)
    both = parts(pieces, others) if at == 0 else parts(others, pieces)
    return "".join(
        html.escape(pair[at]) if pair[0] == pair[1] else f"<mark>{html.escape(pair[at])}</mark>"
        for pair in both
        if pair[at]
    )


def comparisons(a: Run, b: Run) -> str:
    """Two comparisons as HTML: settings, then each decoder of either."""
    first, second = ({row.decoder: row for row in rows(run.results)} for run in (a, b))
    either = first | second
    each = "".join(_section(row, first.get(d), second.get(d)) for d, row in either.items())
    return f'<div class="wb-versus">{settings(a, b)}{each}</div>'


def settings(a: Run, b: Run) -> str:
    """The settings that differ, as HTML."""
    found = differing(a, b)
    head = (
        f"<h3>{counted(len(found.rows), 'setting differs', 'settings differ')}</h3>"
        if found.rows
        else f"<h3>{ALIKE}</h3>"
    )
    return f'<section class="asked">{head}{markup(found) if found.rows else ""}</section>'


def _section(row: Row, a: Row | None, b: Row | None) -> str:
    """One decoder: both texts next to each other, and its figures below. row  one of them"""
    head = f'<h3 class="wb-mark">{mark(look_of(row.decoder))}{html.escape(row.label)}<small>{_agreement(a, b)}</small></h3>'
    if a is None or b is None:
        return f"<section>{head}</section>"
    texts = [[token.text for token in each.first.alone.tokens] for each in (a, b)]
    both = list(zip(SIDES, texts, reversed(texts), strict=True))
    alike = parted(a.first.alone.tokens, b.first.alone.tokens) is None
    sides = "".join(
        f'<div class="side"><h4>{BOTH if alike else side}</h4><div class="text" dir="auto">{marked(own, other, side) or "(no text)"}</div></div>'
        for side, own, other in (both[:1] if alike else both)
    )
    return f'<section>{head}<div class="sides">{sides}</div>{markup(ratios(a, b))}</section>'


def _agreement(a: Row | None, b: Row | None) -> str:
    if a is None or b is None:
        return f"only in {SIDES[b is not None]}"
    own, other = (row.first.alone.tokens for row in (a, b))
    at = parted(own, other)
    return "the same text" if at is None else f"the texts part at token {at + 1}"


def parted(a: Sequence[TokenRecord], b: Sequence[TokenRecord]) -> int | None:
    """The index of the first token that differs; None if none does."""
    if len(a) != len(b) or any(x.id != y.id for x, y in zip(a, b, strict=True)):
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x.id != y.id), min(len(a), len(b)))
    return None


def ratios(a: Row, b: Row) -> Table:
    """The figures that either has, and B's over A's: with ranges or repeats only if the difference reaches beyond them."""
    found = []
    for quantity in QUANTITIES:
        cells = [figure(quantity, row, not unsteady(row)) for row in (a, b)]
        if set(cells) != {MISSING}:
            found.append([quantity.label, *cells, ratio(quantity, a, b)])
    return Table(["figure", *SIDES, RATIO], found)


def ratio(quantity: Quantity, a: Row, b: Row) -> str:
    """B's figure over A's. Only of timings whose ranges lie apart it says which is better: texts may differ by chance."""
    first, second = spread(quantity, a), spread(quantity, b)
    if not (first and second and first.mean > 0 and second.mean > 0):
        return MISSING
    value = times(second.mean / first.mean)
    ranged = all(s.range or s.deviation is not None for s in (first, second))
    if quantity.timed is None or not ranged or unsteady(a) or unsteady(b):
        return value
    low, high = sorted((first, second), key=lambda s: s.mean)
    if low.mean + low.above >= high.mean - high.below:
        return f"{value} ({WITHIN})"
    best = SIDES[(second is high) == (quantity.better == "higher")]
    return f"{value} ({best} is better)"
