"""Two runs of one kind compared.

First come the settings that differ, then decoder by decoder the texts with their differences
marked, and the figures with ratios.
"""

import html
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from itertools import chain
from typing import Any

from decoders import catalog
from workbench.kinds.registry import study_of
from workbench.runs.figures import Row, rows, unsteady
from workbench.runs.record import Run
from workbench.show import looks, quantities
from workbench.show.quantities import MISSING, QUANTITIES, Quantity, figure, spread, times
from workbench.show.tables import Table, markup, words
from workbench.studies import prompts
from workbench.studies.text import counted

SIDES = ("A", "B")
BOTH = "A and B"
ALIKE = "Their settings and machines are the same."
WITHIN = "no difference beyond the ranges"
# The most tokens of texts that are compared piece by piece; of longer texts, only the place where
# they part is marked.
LONGEST = 2000


def differing(a: Run, b: Run) -> Table:
    """The settings and facts of the environment that differ between two runs.

    Those of single decoders are named by their ids.
    """
    first, second = (dict(_named(run, {*a.settings} & {*b.settings})) for run in (a, b))
    return Table(
        ["setting", *SIDES],
        [
            [name, *(words(side[name]) if name in side else MISSING for side in (first, second))]
            for name in dict.fromkeys([*first, *second])
            if first.get(name) != second.get(name)
        ],
    )


def _named(run: Run, shared: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Every setting and every fact of the environment under one name, such as "mtad.beams".

    Of the settings of decoders, only those of `shared` decoders.
    """
    first = {study_of(run.kind).named: prompts.written(run.study.get("prompt", run.title))}
    for name, value in chain(first.items(), run.settings.items(), run.environment.items()):
        if name in catalog and name not in shared:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        else:
            yield name, value


def parts(a: Sequence[str], b: Sequence[str]) -> list[tuple[str, str]]:
    """Two texts in pieces, as (part of a, part of b) in order: equal parts and differing ones."""
    if max(len(a), len(b)) > LONGEST:
        same = alike(a, b)
        spans = [(0, same, 0, same), (same, len(a), same, len(b))]
    else:
        spans = [span[1:] for span in SequenceMatcher(None, a, b).get_opcodes()]
    return [("".join(a[i:j]), "".join(b[k:n])) for i, j, k, n in spans]


def alike(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many items at the beginning of both are the same."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def marked(pieces: Sequence[str], others: Sequence[str], side: str) -> str:
    """The text of one side, escaped; parts that the other side lacks are marked."""
    at = 1 if side == SIDES[1] else 0
    both = parts(others, pieces) if at else parts(pieces, others)
    return "".join(
        html.escape(pair[at]) if pair[0] == pair[1] else f"<mark>{html.escape(pair[at])}</mark>"
        for pair in both
        if pair[at]
    )


def comparisons(a: Run, b: Run) -> str:
    """Two comparisons as HTML: settings, then each decoder of either."""
    first, second = ({row.decoder: row for row in rows(run.results)} for run in (a, b))
    return settings(a, b) + "".join(
        _section(row, first.get(d), second.get(d)) for d, row in (first | second).items()
    )


def settings(a: Run, b: Run) -> str:
    says, table = f"<h3>{ALIKE}</h3>", differing(a, b)
    if table.rows:
        count = counted(len(table.rows), "setting differs", "settings differ")
        says = f"<h3>{count}</h3>{markup(table)}"
    return f'<section class="asked">{says}</section>'


def _section(row: Row, a: Row | None, b: Row | None) -> str:
    if a is None or b is None:
        says, content = f"only in {SIDES[b is not None]}", ""
    else:
        tokens = [each.first.alone.tokens for each in (a, b)]
        ids = [[token.id for token in each] for each in tokens]
        texts = [[token.text for token in each] for each in tokens]
        both = list(zip(SIDES, texts, reversed(texts), strict=True))
        says = f"the texts differ from token {alike(*ids) + 1}"
        if ids[0] == ids[1]:
            says, both = "the same text", [(BOTH, texts[0], texts[1])]
        sides = "".join(
            f'<div class="side"><h4>{side}</h4>'
            f'<div class="text" dir="auto">{marked(own, other, side) or "(no text)"}</div></div>'
            for side, own, other in both
        )
        content = f'<div class="sides">{sides}</div>{markup(ratios(a, b))}'
    return (
        f'<section><h3 class="wb-mark">{looks.mark(looks.look_of(row.decoder))}'
        f"{html.escape(row.label)}<small>{says}</small></h3>{content}</section>"
    )


def ratios(a: Row, b: Row) -> Table:
    """The figures that either row has, and B's divided by A's.

    For figures with ranges or repeats, ratios tell of differences only where they reach beyond
    these.
    """
    lines = []
    for quantity in QUANTITIES:
        times = ratio(quantity, a, b)
        cells = quantities.enough(
            lambda x, y, times=times: quantities.gives(times, y / x),
            *(partial(figure, quantity, row, not unsteady(row)) for row in (a, b)),
        )
        if set(cells) != {MISSING}:
            lines.append([quantity.label, *cells, times])
    return Table(["figure", *SIDES, "B / A"], lines)


def ratio(quantity: Quantity, a: Row, b: Row) -> str:
    """B's figure divided by A's.

    It says which is better only of timings whose ranges lie apart: texts may differ by chance.
    """
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
