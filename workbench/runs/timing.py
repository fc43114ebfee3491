"""Estimates from several timings of the same work, with their ranges, and doubts about them.

The same seed gives the same rounds. If the rounds of all laps are the same, a request's time is the
sum over its rounds of the undisturbed seconds of each, so disturbances that hit different rounds of
different laps leave no trace. For batches, and if rounds differ, it is the undisturbed one of the
laps' seconds. Undisturbed is the quickest of ten, the second quickest of twenty: disturbances only
ever slow a lap, but a mere minimum would fall with every further lap. The range holds the middle
eight tenths of the same estimate over all resamples of whole laps, never of rounds: the rounds of
one lap share a disturbance.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from workbench.runs.record import Energy, Lap, Load, Result

ONE_IN = 10  # one in this many timings, rounded up, is taken for undisturbed
RANGE = 0.8  # the share of the resamples that lie in a range
MOST_RESAMPLES = 500
MOST_AT_ONCE = 2**21  # the most numbers that resampling copies at once
WIDEST = 0.07  # a figure whose range reaches further to either side cannot be compared

Laps = Sequence[Lap]


@dataclass(frozen=True)
class LapFigure:
    """A figure of laps.

    Calling it gives the figure of all laps; None if there is none.

    Attributes:
        over: the figures of resamples, from the laps and their places in each resample (resamples,
            laps); (resamples,) with NaN for a resample without the figure, or None if no resample
            has it
    """

    over: Callable[[Laps, np.ndarray], np.ndarray | None]

    def __call__(self, laps: Laps) -> float | None:
        figure = self.over(laps, np.arange(len(laps))[None])
        return None if figure is None or np.isnan(figure[0]) else float(figure[0])


def seconds(
    rounds: Callable[[Lap], Sequence[float]],
    length: Callable[[Lap], float | None] = lambda _: None,
    together: Callable[..., np.ndarray] = np.sum,
) -> LapFigure:
    """A part of a job's time, as a figure of its laps.

    Args:
        rounds: the seconds of each round of a lap
        length: the seconds of a whole lap, whose undisturbed value is the figure if rounds differ
            or were not timed
        together: combines the undisturbed seconds of the rounds
    """

    def over(laps: Laps, picked: np.ndarray) -> np.ndarray | None:
        each, lengths = [rounds(lap) for lap in laps], [length(lap) for lap in laps]
        same = len(set(map(len, each))) == 1 and all(lap.same_rounds for lap in laps)
        if not (same and each[0]) and (None in lengths or not lengths):
            return None
        # (laps, rounds), or (laps, 1) of whole laps
        times = np.asarray(each) if same and each[0] else np.asarray(lengths)[:, None]
        parts = np.array_split(picked, math.ceil(len(picked) * times.size / MOST_AT_ONCE))
        return np.concatenate([together(_undisturbed(times[part]), axis=-1) for part in parts])

    return LapFigure(over)


def _joules(laps: Laps, picked: np.ndarray) -> np.ndarray:
    # NaN where none were measured.
    spent = np.asarray([lap.energy.joules for lap in laps], dtype=float)[picked]
    counts = np.asarray([not lap.drawn for lap in laps])[picked]
    counts = counts | ~counts.any(-1, keepdims=True)
    return np.where(counts, spent, 0.0).sum(-1) / counts.sum(-1)


whole = seconds(lambda lap: lap.rounds, lambda lap: lap.seconds)  # of the job
# The first round also reads the prompt.
after_first = seconds(lambda lap: lap.rounds[1:], lambda lap: lap.after_first)
first = seconds(  # which is that round's
    lambda lap: lap.rounds[:1],
    lambda lap: None if lap.after_first is None else lap.seconds - lap.after_first,
)
drafting = seconds(lambda lap: lap.drafting[1:], together=np.mean)  # of a round's draft passes
verifying = seconds(lambda lap: lap.verifying[1:], together=np.mean)
joules = LapFigure(_joules)  # mean of the laps that drew nothing, or of all laps if each one drew


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its range over resamples of laps.

    Attributes:
        value: the figure
        low: lower end of the range; with one lap, the figure itself
        high: upper end, likewise
        laps: number of laps
    """

    value: float
    low: float
    high: float
    laps: int

    def scaled(self, factor: float) -> "Estimate":
        return Estimate(factor * self.value, factor * self.low, factor * self.high, self.laps)

    @property
    def reach(self) -> float:
        """How far the range reaches to either side, as a share of the figure."""
        return max(self.high / self.value - 1, 1 - self.low / self.value)


def round_seconds(result: Result) -> list[float]:
    """The undisturbed seconds of each round of a text, which add up to `whole`.

    If a run did not time these rounds, they share its seconds as their passes do; without a timing
    they are the seconds of the rounds' passes. An engine's are the pieces of its answer.
    """
    if arrivals := result.alone.arrivals:
        timed, first = whole(result.laps), result.laps[0].seconds if result.laps else 0
        scale = timed / first if timed and first else 1
        return (np.diff([0.0, *arrivals]) * scale).tolist()
    rounds = result.alone.rounds
    same = result.laps if all(lap.same_rounds for lap in result.laps) else result.laps[:1]
    if not same or {len(lap.rounds) for lap in same} != {len(rounds)}:
        passes = np.asarray([r.draft_seconds + r.verify_seconds for r in rounds])
        timed, spent = whole(result.laps), passes.sum()
        return (passes * (timed / spent) if timed and spent else passes).tolist()
    return _undisturbed(np.asarray([lap.rounds for lap in same])[None])[0].tolist()


def estimate(
    result: Result, shown: Callable[[Any], Any], figure: LapFigure = whole
) -> Estimate | None:
    """A figure of a result with its range.

    Args:
        shown: turns the figure, a number or an array, into the one to estimate

    Returns:
        None if the laps do not have the figure
    """

    def over(picked: np.ndarray) -> np.ndarray | None:
        values = figure.over(result.laps, picked)
        return None if values is None else shown(_positive(values))

    return _over(len(result.laps), over)


def ratio(result: Result, base: Result, figure: LapFigure = whole) -> Estimate | None:
    """The base's seconds divided by the result's, over the complete cycles of both."""
    count = min(len(result.laps), len(base.laps))

    def over(picked: np.ndarray) -> np.ndarray | None:
        own, other = (figure.over(r.laps[:count], picked) for r in (result, base))
        return None if own is None or other is None else _positive(other) / _positive(own)

    return _over(count, over)


def energy(laps: Laps) -> Energy:
    if len(laps) == 1:
        only = laps[0].energy
        more = "; drawing the page is included" if laps[0].drawn and only.joules is not None else ""
        return Energy(only.joules, only.source, only.detail + more)
    each = [lap.energy for lap in laps if not lap.drawn] or [lap.energy for lap in laps]
    if any(e.joules is None for e in each):
        return next(e for e in each if e.joules is None)
    return Energy(joules(laps), each[0].source, f"mean of {len(each)} laps; {each[0].detail}")


def _undisturbed(seconds: np.ndarray) -> np.ndarray:
    """(resamples, laps, rounds) -> (resamples, rounds)."""
    place = math.ceil(seconds.shape[1] / ONE_IN) - 1
    return np.partition(seconds, place, axis=1)[:, place]


def _over(count: int, figure: Callable[[np.ndarray], np.ndarray | None]) -> Estimate | None:
    if not count:
        return None
    picked, orders = _resamples(count)
    values = figure(np.concatenate([np.arange(count)[None], picked]))
    if values is None or np.isnan(values[0]):
        return None
    value, others = float(values[0]), np.repeat(values[1:], orders)
    low, high = np.nanquantile(others, [(1 - RANGE) / 2, (1 + RANGE) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), count)


def _positive(values: np.ndarray) -> np.ndarray:
    """The values, NaN for those that nothing can be divided by."""
    return np.where(values > 0, values, np.nan)


@cache
def _resamples(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The resamples of laps, with replacement, and the number of orders in which each comes.

    If there are more than MOST_RESAMPLES, a fixed random choice of that many.
    """
    if math.comb(2 * count - 1, count) <= MOST_RESAMPLES:
        ways = list(combinations_with_replacement(range(count), count))
        repeats = [math.prod(map(math.factorial, Counter(way).values())) for way in ways]
        return np.asarray(ways), math.factorial(count) // np.asarray(repeats)
    source = random.Random(0)
    ways = [tuple(source.choices(range(count), k=count)) for _ in range(MOST_RESAMPLES)]
    return np.asarray(ways), np.ones(MOST_RESAMPLES, dtype=int)


# The least and the most of a lap's counters if nothing disturbed it. Shares are of a core for the
# decoding thread, and of the time that was lost; times are per second.
BOUNDS = {
    "cpu_share": (0.9, math.inf),
    "preempted": (-math.inf, 50.0),
    "throttled": (-math.inf, 0.02),
    "stolen": (-math.inf, 0.02),
    "pressure": (-math.inf, 0.6),
}
BUSY = "other programs, or a limit of this machine, held the decoder back"


def wide(result: Result, base: Result | None) -> Estimate | None:
    """A result's speed, if its timings leave it too uncertain to be compared.

    Args:
        base: the result whose speed it is divided by, if it is another one

    Returns:
        None if the speed can be compared, or was timed once
    """
    speed = (
        ratio(result, base)
        if base is not None and base is not result
        else estimate(result, lambda s: 1 / s)
    )
    return speed if speed is not None and speed.laps > 1 and speed.reach > WIDEST else None


def unsteady(result: Result, base: Result | None) -> list[str]:
    """The reasons why a result's speed cannot be trusted, in sentences.

    A single timing has no range, but it has counters. That timings with the same seed wrote other
    tokens must never happen.

    Args:
        base: the result that its speed is compared with
    """
    reasons, laps = [], len(result.laps)
    if differing := sum(not lap.same_tokens for lap in result.laps):
        reasons.append(
            f"{differing} of {laps} timings wrote tokens that differ from the first timing's, with "
            "the same seed"
        )
    if (speed := wide(result, base)) is not None:
        reasons.append(f"{speed.laps} timings leave it uncertain by up to {speed.reach:.0%}")
    return reasons + disturbances(result)


def disturbances(result: Result) -> list[str]:
    """What disturbed most of a result's timings, in sentences."""
    busy = sum(any(_beyond(lap.load, name) for name in BOUNDS) for lap in result.laps)
    says = [BUSY] if busy > len(result.laps) / 2 else []
    return says + [lap.load.gpu for lap in result.laps if lap.load.gpu][:1]


def _beyond(load: Load, counter: str) -> bool:
    value, (least, most) = getattr(load, counter), BOUNDS[counter]
    return value is not None and not least <= value <= most
