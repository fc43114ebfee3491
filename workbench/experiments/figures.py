"""Figures of cells from their rows, with intervals by a paired bootstrap over items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from workbench.experiments.journal import Kept, Row
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


def good(kept: Kept) -> dict[int, Row]:
    """The rows without an error, by item."""
    return {
        item: row
        for item, row in kept.rows.items()
        if not row.errors and row.metrics.get("new_tokens") is not None
    }


def figure(
    name: str, kept: Kept, greedy: Kept | None = None, items: Sequence[int] | None = None
) -> Interval | None:
    """A figure of a cell.

    Args:
        name: a name of `FIGURES`
        kept: the cell
        greedy: the greedy cell that it is compared with, for TIMES_GREEDY
        items: use only these items; by default all that both cells have

    Returns:
        the figure, None if the cell does not have it
    """
    if FIGURES[name].timed and not kept.asked["timed"]:
        return None
    found = resampled(
        name,
        kept,
        greedy,
        common(kept, *([greedy] if name == TIMES_GREEDY and greedy else []), among=items),
    )
    return None if found is None else interval(found)


def interval(found: np.ndarray) -> Interval:
    """The first of some values, with the percentiles of the others."""
    low, high = np.percentile(found[1:], COVERED)
    return Interval(float(found[0]), float(low), float(high))


def common(*cells: Kept, among: Sequence[int] | None = None) -> list[int]:
    """The items that all of the cells have."""
    shared = set.intersection(*(set(good(cell)) for cell in cells))
    return sorted(shared if among is None else shared & set(among))


def resampled(
    name: str, kept: Kept, greedy: Kept | None, items: Sequence[int]
) -> np.ndarray | None:
    """A figure, then that of each resample of the items, (RESAMPLES + 1,).

    The resamples depend only on the number of items, so those of two cells are paired.

    Args:
        name: a name of `FIGURES`
        kept: the cell
        greedy: the greedy cell that it is compared with, for TIMES_GREEDY
        items: the items, all of which the cells have

    Returns:
        the figures, None if the cell does not have them
    """
    if not items or (name == TIMES_GREEDY and greedy is None):
        return None
    if greedy is not None and name == TIMES_GREEDY:
        mine, other = (resampled("tokens/s", cell, None, items) for cell in (kept, greedy))
        return mine / other if mine is not None and other is not None else None
    ratio = FIGURES[name].ratio
    assert ratio is not None  # all others have one
    groups = [[row.result for row in group] for group in _groups(good(kept), items)]
    sums = np.array([[sum(map(ratio.above, g)), sum(map(ratio.below, g))] for g in groups])
    if not sums[:, 1].sum() or not (name == "score" or sums[:, 0].sum()):
        return None
    drawn = resamples(len(groups)) @ sums
    drawn = drawn[drawn[:, 1] > 0] if (drawn[:, 1] <= 0).any() else drawn
    return ratio.made(drawn[:, 0] / drawn[:, 1])


def _groups(rows: Mapping[int, Row], items: Sequence[int]) -> list[list[Row]]:
    """The rows that are resampled together: all timings of the same prompts.

    Repeated timings are no further prompts. If there are too few prompts for an interval, each
    timing is resampled alone.
    """
    found: dict[tuple[int, ...], list[Row]] = {}
    for i in items:
        found.setdefault(tuple(o.prompt for o in rows[i].outputs), []).append(rows[i])
    return list(found.values()) if len(found) >= LEAST_ITEMS else [[rows[i]] for i in items]


# A report asks for all items and those of each category; a running experiment has more in the next.
@lru_cache(maxsize=8)
def resamples(count: int) -> np.ndarray:
    """How often each item is drawn, (RESAMPLES + 1, count): once each, then resampled."""
    source, each = np.random.default_rng(0), np.full(count, 1 / count)
    return np.vstack([np.ones((1, count)), source.multinomial(count, each, RESAMPLES)])


def greedy_of(kept: Kept, cells: Sequence[Kept]) -> Kept | None:
    """The greedy cell that took turns with this one."""
    if not kept.asked["timed"]:
        return None
    same = {"decoder": BASELINE, "scheme": baseline_scheme(kept.asked["scheme"])}
    return next(
        (c for c in cells if c.block == kept.block and same.items() <= c.asked.items()), None
    )


def below(
    name: str, less: Kept, than: Kept, cells: Sequence[Kept], among: Sequence[int] | None = None
) -> Interval | None:
    """The figure of `than` minus that of `less`, on the items of both; None if not known.

    Args:
        name: name of the figure
        less: the cell that is expected to have the smaller figure
        than: the other cell
        cells: all cells, among which are the greedy ones
        among: use only these items
    """
    items = common(less, than, among=among)
    one, other = (resampled(name, cell, greedy_of(cell, cells), items) for cell in (less, than))
    if one is None or other is None or len(one) != len(other):
        return None
    return interval(other - one)


def accepted_by_position(kept: Kept) -> list[float]:
    """For each place of the draft, the share of rounds in which the output grew beyond it.

    Only rounds that drafted as far as this place count.
    """
    pairs = [
        (g, d)
        for row in good(kept).values()
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


def mean_gained(kept: Kept) -> float | None:
    """Mean tokens per round."""
    gained = [g for row in good(kept).values() for o in row.outputs for g in o.gained]
    return sum(gained) / len(gained) if gained else None


def categories(kept: Kept) -> dict[str, list[int]]:
    """The items of each category, if items are single prompts."""
    found: dict[str, list[int]] = {}
    for item, row in kept.rows.items():
        if len(row.outputs) == 1 and row.outputs[0].category:
            found.setdefault(row.outputs[0].category, []).append(item)
    return found


def by_category(
    name: str, kept: Kept, cells: Sequence[Kept], names: Sequence[str]
) -> list[Interval | None]:
    """A figure of a cell for each of some categories.

    Args:
        name: name of the figure
        kept: the cell
        cells: all cells, among which is the greedy one
        names: the categories
    """
    greedy, items = greedy_of(kept, cells), categories(kept)
    return [figure(name, kept, greedy, items.get(category, [])) for category in names]
