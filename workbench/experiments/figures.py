"""Figures of cells from their rows, with intervals by a paired bootstrap over items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.experiments.journal import CellRows, ItemRow
from workbench.show.quantities import FIGURES
from workbench.studies.schemes import BASELINE, baseline_scheme

RESAMPLES = 2000
COVERED = (2.5, 97.5)  # percentiles
LEAST_ITEMS = 3  # fewer have no interval worth the name


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95% interval.

    Attributes:
        value: the figure over all items
        low: 2.5% of the resamples of the items are below this
        high: 2.5% are above this
    """

    value: float
    low: float
    high: float


TIMES_GREEDY = "x greedy"


def good(cell: CellRows) -> dict[int, ItemRow]:
    """The rows without an error, by item."""
    return {
        item: row
        for item, row in cell.rows.items()
        if not row.errors and row.metrics.get("new_tokens") is not None
    }


def figure(
    name: str, cell: CellRows, greedy: CellRows | None = None, items: Sequence[int] | None = None
) -> Interval | None:
    """A figure of a cell.

    Args:
        name: a name of `FIGURES`
        greedy: the greedy cell that it is compared with, for TIMES_GREEDY
        items: use only these items; by default all that both cells have

    Returns:
        the figure, None if the cell does not have it
    """
    if FIGURES[name].timed and not cell.spec["timed"]:
        return None
    values = resampled(
        name,
        cell,
        greedy,
        common(cell, *([greedy] if name == TIMES_GREEDY and greedy else []), among=items),
    )
    return None if values is None else interval(values)


def interval(values: np.ndarray) -> Interval:
    """The first of some values, with the percentiles of the others."""
    low, high = np.percentile(values[1:], COVERED)
    return Interval(float(values[0]), float(low), float(high))


def common(*cells: CellRows, among: Sequence[int] | None = None) -> list[int]:
    """The items that all of the cells have."""
    shared = set.intersection(*(set(good(cell)) for cell in cells))
    return sorted(shared if among is None else shared & set(among))


def resampled(
    name: str, cell: CellRows, greedy: CellRows | None, items: Sequence[int]
) -> np.ndarray | None:
    """A figure, then that of each resample of the items, (RESAMPLES + 1,).

    The resamples depend only on the number of items, so those of two cells are paired.

    Args:
        name: a name of `FIGURES`
        greedy: the greedy cell that it is compared with, for TIMES_GREEDY
        items: the items, all of which the cells have

    Returns:
        the figures, None if the cell does not have them
    """
    if not items or (name == TIMES_GREEDY and greedy is None):
        return None
    if greedy is not None and name == TIMES_GREEDY:
        mine, other = (resampled("tokens/s", each, None, items) for each in (cell, greedy))
        return mine / other if mine is not None and other is not None else None
    ratio = FIGURES[name].ratio
    assert ratio is not None  # all others have one
    groups = [[row.result for row in group] for group in _groups(good(cell), items)]
    sums = np.array([[sum(map(ratio.above, g)), sum(map(ratio.below, g))] for g in groups])
    if not sums[:, 1].sum() or not (name == "score" or sums[:, 0].sum()):
        return None
    totals = resamples(len(groups)) @ sums
    totals = totals[totals[:, 1] > 0] if (totals[:, 1] <= 0).any() else totals
    return ratio.finish(totals[:, 0] / totals[:, 1])


def _groups(rows: Mapping[int, ItemRow], items: Sequence[int]) -> list[list[ItemRow]]:
    """The rows that are resampled together: all timings of the same prompts.

    Repeated timings are no further prompts. If there are too few prompts for an interval, each
    timing is resampled alone.
    """
    groups: dict[tuple[int, ...], list[ItemRow]] = {}
    for i in items:
        groups.setdefault(tuple(o.prompt for o in rows[i].outputs), []).append(rows[i])
    return list(groups.values()) if len(groups) >= LEAST_ITEMS else [[rows[i]] for i in items]


# A report asks for all items and those of each category; a running experiment has more in the next.
@lru_cache(maxsize=8)
def resamples(count: int) -> np.ndarray:
    """How often each item is drawn, (RESAMPLES + 1, count): once each, then resampled."""
    source, each = np.random.default_rng(0), np.full(count, 1 / count)
    return np.vstack([np.ones((1, count)), source.multinomial(count, each, RESAMPLES)])


def greedy_of(cell: CellRows, cells: Sequence[CellRows]) -> CellRows | None:
    """The greedy cell that took turns with this one."""
    if not cell.spec["timed"]:
        return None
    same = {"decoder": BASELINE, "scheme": baseline_scheme(cell.spec["scheme"])}
    return next(
        (c for c in cells if c.block == cell.block and same.items() <= c.spec.items()), None
    )


def below(
    name: str,
    less: CellRows,
    than: CellRows,
    cells: Sequence[CellRows],
    among: Sequence[int] | None = None,
) -> Interval | None:
    """The figure of `than` minus that of `less`, on the items of both; None if not known.

    Args:
        less: the cell that is expected to have the smaller figure
        cells: all cells, among which are the greedy ones
        among: use only these items
    """
    items = common(less, than, among=among)
    one, other = (resampled(name, cell, greedy_of(cell, cells), items) for cell in (less, than))
    if one is None or other is None or len(one) != len(other):
        return None
    return interval(other - one)


def accepted_by_position(cell: CellRows) -> list[float]:
    """For each place of the draft, the share of rounds in which the output grew beyond it.

    Only rounds that drafted as far as this place count.
    """
    pairs = [
        (g, d)
        for row in good(cell).values()
        for o in row.outputs
        for g, d in zip(o.gained, o.drafted, strict=False)
    ]
    # A tree has more drafts than places, so stop at the deepest that was ever kept.
    longest = min(
        max((d for _, d in pairs), default=0), max(1, max((g - 1 for g, _ in pairs), default=0))
    )
    shares = []
    for place in range(1, min(longest, 16) + 1):
        reached = [g > place for g, d in pairs if d >= place]
        shares.append(sum(reached) / len(reached))
    return shares


def mean_gained(cell: CellRows) -> float | None:
    gained = [g for row in good(cell).values() for o in row.outputs for g in o.gained]
    return sum(gained) / len(gained) if gained else None


def categories(cell: CellRows) -> dict[str, list[int]]:
    """The items of each category, if items are single prompts."""
    items: dict[str, list[int]] = {}
    for item, row in cell.rows.items():
        if len(row.outputs) == 1 and row.outputs[0].category:
            items.setdefault(row.outputs[0].category, []).append(item)
    return items


def by_category(
    name: str, cell: CellRows, cells: Sequence[CellRows], names: Sequence[str]
) -> list[Interval | None]:
    """A figure of a cell for each of some categories.

    Args:
        cells: all cells, among which is the greedy one
    """
    greedy, items = greedy_of(cell, cells), categories(cell)
    return [figure(name, cell, greedy, items.get(category, [])) for category in names]
