"""What several timings of the same work come to: an estimate, its range, and whether it can be trusted.

Same seed, same rounds: if the rounds of all laps are the same, a request's time is the sum over its rounds of that round's undisturbed
seconds, so disturbances that hit different rounds of different laps leave no trace. For batches, and if rounds differ, it is the
undisturbed one of the laps' seconds. Undisturbed is the quickest of ten, the second quickest of twenty: what disturbs only ever slows,
but a mere minimum would fall with every further lap. The range holds the middle eight tenths of the same estimate over all resamples
of whole laps, never of rounds: those of one lap share a disturbance.
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

ONE_IN = 10  # timings, rounded up, is taken for undisturbed
RANGE = 0.8  # of the resamples lie in it
MOST_RESAMPLES = 500
MOST_AT_ONCE = 2**21  # seconds of rounds that resampling copies
WIDEST = 0.07  # a figure whose range reaches further to either side cannot be compared
LEAST_SHARE = 0.9  # of a core that the decoding thread must have had
MOST_PREEMPTED = 50.0  # a second
MOST_LOST = 0.02  # of the time, to throttling or to the hypervisor
MOST_PRESSURE = 0.6

Laps = Sequence[Lap]


@dataclass(frozen=True)
class Figure:
    """What laps come to: all of them, or resamples of their places, (resamples, laps) -> (resamples,), NaN for one that has no such
    figure; None if there is none at all."""

    over: Callable[[Laps, np.ndarray], np.ndarray | None]

    def __call__(self, laps: Laps) -> float | None:
        found = self.over(laps, np.arange(len(laps))[None])
        return None if found is None or np.isnan(found[0]) else float(found[0])


def seconds(
    rounds: Callable[[Lap], Sequence[float]],
    length: Callable[[Lap], float | None] = lambda _: None,
    together: Callable[..., np.ndarray] = np.sum,
) -> Figure:
    """A part of a job's time: each round's undisturbed seconds taken `together`, or, if rounds differ or were not timed, the undisturbed
    `length` of whole laps."""

    def table(laps: Laps) -> np.ndarray | None:
        """(laps, rounds), or (laps, 1) of whole laps."""
        each, lengths = [rounds(lap) for lap in laps], [length(lap) for lap in laps]
        if each and each[0] and len(set(map(len, each))) == 1 and all(lap.same_rounds for lap in laps):
            return np.asarray(each)
        known = [length for length in lengths if length is not None]
        return np.asarray(known)[:, None] if known and len(known) == len(laps) else None

    def over(laps: Laps, picked: np.ndarray) -> np.ndarray | None:
        found = table(laps)
        if found is None:
            return None
        parts = np.array_split(picked, math.ceil(len(picked) * found.size / MOST_AT_ONCE))
        return np.concatenate([together(_undisturbed(found[part]), axis=-1) for part in parts])

    return Figure(over)


def _joules(laps: Laps, picked: np.ndarray) -> np.ndarray:
    spent = np.asarray([lap.energy.joules for lap in laps], dtype=float)[picked]  # NaN where none were measured
    counts = np.asarray([not lap.drawn for lap in laps])[picked]
    counts = counts | ~counts.any(-1, keepdims=True)
    return np.where(counts, spent, 0.0).sum(-1) / counts.sum(-1)


def _both(laps: Laps, picked: np.ndarray) -> np.ndarray | None:
    parts = [found for part in (drafting, verifying) if (found := part.over(laps, picked)) is not None]
    return np.sum(parts, axis=0) if parts else None


whole = seconds(lambda lap: lap.rounds, lambda lap: lap.seconds)  # of the job
after_first = seconds(lambda lap: lap.rounds[1:], lambda lap: lap.after_first)  # the first round also reads the prompt
drafting = seconds(lambda lap: lap.drafting[1:], together=np.mean)  # of a round's draft passes
verifying = seconds(lambda lap: lap.verifying[1:], together=np.mean)
drafting_and_verifying = Figure(_both)
joules = Figure(_joules)  # mean of the laps that drew nothing, or of all laps if each one drew


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its range over resamples of `laps` laps; with one lap the range is the figure itself."""

    value: float
    low: float
    high: float
    laps: int

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit."""
        return Estimate(factor * self.value, factor * self.low, factor * self.high, self.laps)

    @property
    def wide(self) -> bool:
        """Whether the range reaches too far to either side for the figure to be compared."""
        return self.high > (1 + WIDEST) * self.value or self.low < (1 - WIDEST) * self.value


def round_seconds(result: Result) -> list[float]:
    """The undisturbed seconds of each round of a text, which add up to `whole`; of a run that did not time rounds, those of its passes."""
    rounds = result.alone.rounds
    same = result.laps if all(lap.same_rounds for lap in result.laps) else result.laps[:1]
    if not same or {len(lap.rounds) for lap in same} != {len(rounds)}:
        return [r.draft_seconds + r.verify_seconds for r in rounds]
    return _undisturbed(np.asarray([lap.rounds for lap in same])[None])[0].tolist()


def estimate(result: Result, shown: Callable[[Any], Any], figure: Figure = whole) -> Estimate | None:
    """`shown(figure)` of a result, with its range; None if there is no such figure. `shown` is given numbers and arrays."""

    def over(picked: np.ndarray) -> np.ndarray | None:
        found = figure.over(result.laps, picked)
        return None if found is None else shown(_positive(found))

    return _over(len(result.laps), over)


def ratio(result: Result, base: Result, figure: Figure = whole) -> Estimate | None:
    """The base's seconds over the result's, lap by lap of the same cycle: only complete cycles count."""
    count = min(len(result.laps), len(base.laps))

    def over(picked: np.ndarray) -> np.ndarray | None:
        own, other = (figure.over(r.laps[:count], picked) for r in (result, base))
        return None if own is None or other is None else _positive(other) / _positive(own)

    return _over(count, over)


def energy(laps: Laps) -> Energy:
    """The energy of one lap, from those that drew nothing."""
    if len(laps) == 1:
        only = laps[0].energy
        more = "; drawing the page is included" if laps[0].drawn and only.joules is not None else ""
        return Energy(only.joules, only.source, only.detail + more)
    found = [lap.energy for lap in laps if not lap.drawn] or [lap.energy for lap in laps]
    if any(e.joules is None for e in found):
        return next(e for e in found if e.joules is None)
    return Energy(joules(laps), found[0].source, f"mean of {len(found)} laps; {found[0].detail}")


def wide(result: Result, base: Result | None) -> Estimate | None:
    """The result's speed over the base's, or alone if it is the base, if several timings leave it too uncertain to be compared."""
    found = ratio(result, base) if base is not None and base is not result else estimate(result, lambda s: 1 / s)
    return found if found is not None and found.laps > 1 and found.wide else None


def unsteady(result: Result, base: Result | None) -> list[str]:
    """Why the result's speed cannot be trusted, in sentences; [] if it can. A single timing has no range, but it has counters."""
    reasons = []
    if (found := wide(result, base)) is not None:
        share = max(found.high / found.value - 1, 1 - found.low / found.value)
        reasons.append(f"{found.laps} timings leave it uncertain by up to {share:.0%}")
    return reasons + disturbances(result)


def disturbances(result: Result) -> list[str]:
    """What the machine's counters say against the result's timings, in sentences."""
    most = len(result.laps) / 2
    reasons = [says for says, disturbed in _DISTURBED.items() if sum(disturbed(lap.load) for lap in result.laps) > most]
    return reasons + [lap.load.gpu for lap in result.laps if lap.load.gpu][:1]


def faults(result: Result) -> list[str]:
    """What must never happen: timings with the same seed that wrote other tokens."""
    differing = sum(not lap.same_tokens for lap in result.laps)
    return (
        [f"{differing} of {len(result.laps)} timings wrote other tokens than the first with the same seed"]
        if differing
        else []
    )


_DISTURBED: dict[str, Callable[[Load], bool]] = {
    "other programs kept the decoding thread from its core": lambda load: _below(load.cpu_share, LEAST_SHARE),
    "other programs interrupted the decoder's threads": lambda load: _above(load.preempted, MOST_PREEMPTED),
    "the container's CPU limit held the decoder back": lambda load: _above(load.throttled, MOST_LOST),
    "the machine's host took cores away": lambda load: _above(load.stolen, MOST_LOST),
    "programs on this machine waited for a free core": lambda load: _above(load.pressure, MOST_PRESSURE),
}


def _below(value: float | None, least: float) -> bool:
    return value is not None and value < least


def _above(value: float | None, most: float) -> bool:
    return value is not None and value > most


def _undisturbed(seconds: np.ndarray) -> np.ndarray:
    """(resamples, laps, rounds) -> (resamples, rounds)."""
    place = math.ceil(seconds.shape[1] / ONE_IN) - 1
    return np.partition(seconds, place, axis=1)[:, place]


def _over(count: int, figure: Callable[[np.ndarray], np.ndarray | None]) -> Estimate | None:
    everything = figure(np.arange(count)[None]) if count else None
    if everything is None or np.isnan(everything[0]):
        return None
    value = float(everything[0])
    if count == 1:
        return Estimate(value, value, value, 1)
    picked, orders = _resamples(count)
    found = figure(picked)
    ends = [(1 - RANGE) / 2, (1 + RANGE) / 2]
    low, high = (value, value) if found is None else np.nanquantile(np.repeat(found, orders), ends)
    return Estimate(value, min(float(low), value), max(float(high), value), count)


def _positive(values: np.ndarray) -> np.ndarray:
    """NaN where there is nothing to divide by."""
    return np.where(values > 0, values, np.nan)


@cache
def _resamples(count: int) -> tuple[np.ndarray, np.ndarray]:
    """All ways to draw as many laps with replacement and in how many orders each comes, or a fixed random MOST_RESAMPLES if there are more."""
    if math.comb(2 * count - 1, count) <= MOST_RESAMPLES:
        ways = list(combinations_with_replacement(range(count), count))
        return np.asarray(ways), np.asarray([_orders(picked) for picked in ways])
    source = random.Random(0)
    ways = [tuple(source.choices(range(count), k=count)) for _ in range(MOST_RESAMPLES)]
    return np.asarray(ways), np.ones(MOST_RESAMPLES, dtype=int)


def _orders(picked: Sequence[int]) -> int:
    return math.factorial(len(picked)) // math.prod(map(math.factorial, Counter(picked).values()))
