"""Which decoder of a run was fastest, and in which places decoders finished."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from workbench.runs import laps
from workbench.runs.estimates import Row, mean_speed, rows, speed, timed_speed, unsteady
from workbench.runs.laps import Estimate
from workbench.runs.record import Run

UNKNOWN = (0.0, math.inf)  # the range of a figure that may lie anywhere


class Fastest(NamedTuple):
    """The decoder of a run that wrote most tokens per second, mean over its repeats.

    Attributes:
        decoder: its id
        speed: tokens per second
        batch_size: requests decoded at once
        greedy: greedy's speed in the same kind of batch; None if it was not measured
        sure: see `quickest`
        stopped: whether the run was stopped
    """

    decoder: str
    speed: float
    batch_size: int
    greedy: float | None
    sure: bool = True
    stopped: bool = False


def fastest(run: Run) -> Fastest | None:
    """The fastest decoder of a run; None if none was timed."""
    row, sure = quickest(rows(run.results))
    if row is None or (speed := mean_speed(row.results)) is None:
        return None
    return Fastest(row.decoder, speed, row.batch_size, mean_speed(row.greedy), sure, run.cancelled)


def quickest(found: Sequence[Row]) -> tuple[Row | None, bool]:
    """The row with most tokens per second.

    Returns:
        (row, sure): the row, None if none was timed, and whether no other row shares its place
    """
    timed = [(speed, row) for row in found if (speed := _mean(row))]
    if not timed:
        return None, False
    _, first = max(timed, key=lambda each: each[0])
    return first, _reach(first) != UNKNOWN and len(leaders(found)) == 1


def leaders(found: Sequence[Row]) -> list[Row]:
    """The rows that share the first place in tokens per second."""
    timed = [row for row in found if _mean(row)]
    turned = [(-high, -low) for low, high in map(_reach, timed)]
    return [row for row, place in zip(timed, places(turned), strict=True) if place == 1]


def _mean(row: Row) -> float | None:
    speed = mean_speed(row.results)
    return speed if speed and math.isfinite(speed) else None


def _reach(row: Row) -> tuple[float, float]:
    """The range of a row's speed.

    It is one standard deviation over repeats, or the range of a single repeat's timings.
    """
    speeds = [value for r in row.results if r.error is None and (value := speed(r))]
    if len(speeds) > 1 and not unsteady(row):
        return fmean(speeds) - stdev(speeds), fmean(speeds) + stdev(speeds)
    return _range(row, timed_speed(row.first))


def _range(row: Row, timed: Estimate | None) -> tuple[float, float]:
    """The range of an estimate; a row that was timed once or was disturbed may lie anywhere."""
    return (timed.low, timed.high) if timed and timed.laps > 1 and not unsteady(row) else UNKNOWN


def finishes(found: Sequence[Row]) -> list[int]:
    """The place in which each row finished its text of the first repeat."""
    return places(
        [_range(row.once, laps.estimate(row.first, lambda seconds: seconds)) for row in found]
    )


def places(ranges: Sequence[tuple[float, float]]) -> list[int]:
    """The place of each range, the least first.

    Ranges that overlap, also by way of others, share a place.

    Args:
        ranges: (low, high) of each
    """
    found, place, end = [0] * len(ranges), 0, -math.inf
    for count, i in enumerate(sorted(range(len(ranges)), key=lambda i: ranges[i]), 1):
        low, high = ranges[i]
        place = count if low > end else place
        found[i], end = place, max(end, high)
    return found
