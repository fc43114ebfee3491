"""What several timings of the same work come to: an estimate, its range, and whether it can be trusted.

Same seed, same rounds: if the rounds of all laps are the same, a request's time is the sum over its rounds of that round's undisturbed
seconds, so disturbances that hit different rounds of different laps leave no trace. For batches, and if rounds differ, it is the
undisturbed one of the laps' seconds. Undisturbed is the quickest of ten, the second quickest of twenty: what disturbs only ever slows,
but a mere minimum would fall with every further lap. The range holds the middle eight tenths of the same estimate over all resamples of whole laps, never of rounds: those
of one lap share a disturbance.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from statistics import fmean

import numpy as np

from workbench.runs.record import Energy, Lap, Load, Result

ONE_IN = 10  # timings, rounded up, is taken for undisturbed
RANGE = 0.8  # of the resamples lie in it
MOST_RESAMPLES = 500
WIDEST = 0.07  # a figure whose range reaches further to either side cannot be compared
LEAST_SHARE = 0.9  # of a core that the decoding thread must have had
MOST_PREEMPTED = 50.0  # a second
MOST_LOST = 0.02  # of the time, to throttling or to the hypervisor
MOST_PRESSURE = 0.6

Laps = Sequence[Lap]
Seconds = Callable[[Laps], float | None]


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


def whole(laps: Laps) -> float | None:
    """Seconds of the whole job."""
    return _seconds(laps, [lap.rounds for lap in laps], [lap.seconds for lap in laps])


def after_first(laps: Laps) -> float | None:
    """Seconds without the first round, which also reads the prompt."""
    return _seconds(laps, [lap.rounds[1:] for lap in laps], [lap.after_first for lap in laps])


def drafting(laps: Laps) -> float | None:
    """Mean seconds of a round's draft passes, the first round left out."""
    return _mean(_per_round([lap.drafting[1:] for lap in laps]))


def verifying(laps: Laps) -> float | None:
    """Mean seconds of a round's target passes, the first round left out."""
    return _mean(_per_round([lap.verifying[1:] for lap in laps]))


def round_seconds(result: Result) -> list[float]:
    """The undisturbed seconds of each round of a text, which add up to `whole`; of a run that did not time rounds, those of its passes."""
    rounds = result.alone.rounds
    same = result.laps if all(lap.same_rounds for lap in result.laps) else result.laps[:1]
    found = _per_round([lap.rounds for lap in same])
    return found if found and len(found) == len(rounds) else [r.draft_seconds + r.verify_seconds for r in rounds]


def joules(laps: Laps) -> float | None:
    """Mean energy of the laps that drew nothing, or of all laps if each one drew."""
    drawn_none = [lap for lap in laps if not lap.drawn] or laps
    found = [lap.energy.joules for lap in drawn_none if lap.energy.joules is not None]
    return fmean(found) if found and len(found) == len(drawn_none) else None


def estimate(result: Result, figure: Callable[[float], float], seconds: Seconds = whole) -> Estimate | None:
    """`figure(seconds)` of a result, with its range; None if there is no such figure."""
    return _over(len(result.laps), lambda picked: _applied(figure, seconds([result.laps[i] for i in picked])))


def ratio(result: Result, base: Result, seconds: Seconds = whole) -> Estimate | None:
    """The base's seconds over the result's, lap by lap of the same cycle: only complete cycles count."""

    def of(picked: Sequence[int]) -> float | None:
        own, other = (seconds([r.laps[i] for i in picked]) for r in (result, base))
        return other / own if own and other else None

    return _over(min(len(result.laps), len(base.laps)), of)


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
    for sentence, disturbed in _DISTURBED.items():
        if 2 * sum(disturbed(lap.load) for lap in result.laps) > len(result.laps):
            reasons.append(sentence)
    gpu = [lap.load.gpu for lap in result.laps if lap.load.gpu]
    return reasons + ([gpu[0]] if gpu else [])


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


def _undisturbed(seconds: Sequence[float] | Sequence[Sequence[float]]) -> np.ndarray:
    """Over the first axis."""
    place = math.ceil(len(seconds) / ONE_IN) - 1
    return np.partition(np.asarray(seconds), place, axis=0)[place]


def _seconds(laps: Laps, rounds: Sequence[Sequence[float]], lengths: Sequence[float | None]) -> float | None:
    known = [length for length in lengths if length is not None]
    if len(known) < len(lengths) or not known:
        return None
    by_round = _per_round(rounds) if all(lap.same_rounds for lap in laps) else None
    return sum(by_round) if by_round else float(_undisturbed(known))


def _per_round(rounds: Sequence[Sequence[float]]) -> list[float] | None:
    """Each round's undisturbed seconds; None if there are no rounds, or not the same number of them."""
    if not rounds or not rounds[0] or len({len(lap) for lap in rounds}) > 1:
        return None
    return _undisturbed(rounds).tolist()


def _mean(values: Sequence[float] | None) -> float | None:
    return fmean(values) if values else None


def _applied(figure: Callable[[float], float], seconds: float | None) -> float | None:
    return figure(seconds) if seconds else None


def _over(count: int, figure: Callable[[Sequence[int]], float | None]) -> Estimate | None:
    value = figure(range(count)) if count else None
    if value is None:
        return None
    found = [(v, orders) for picked, orders in _resamples(count) if (v := figure(picked)) is not None]
    values, times = zip(*found, strict=True)
    low, high = np.quantile(np.repeat(values, times), [(1 - RANGE) / 2, (1 + RANGE) / 2])
    return Estimate(value, min(float(low), value), max(float(high), value), count)


def _resamples(count: int) -> list[tuple[Sequence[int], int]]:
    """All ways to draw as many laps with replacement and in how many orders each comes, or a fixed random MOST_RESAMPLES if there are more."""
    if math.comb(2 * count - 1, count) <= MOST_RESAMPLES:
        return [(picked, _orders(picked)) for picked in combinations_with_replacement(range(count), count)]
    source = random.Random(0)
    return [(source.choices(range(count), k=count), 1) for _ in range(MOST_RESAMPLES)]


def _orders(picked: Sequence[int]) -> int:
    return math.factorial(len(picked)) // math.prod(map(math.factorial, Counter(picked).values()))
