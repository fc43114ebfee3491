"""Figures from results: grouped into rows, each with greedy's result of the same seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import NamedTuple

from decoders import catalog
from workbench.runs import laps
from workbench.runs.laps import Estimate
from workbench.runs.record import Result, Run
from workbench.studies.schemes import ALONE, BASELINE, SCHEMES, baseline_scheme, batches


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: what a decoder did at one batch size in one scheme, over all repeats.

    label     the decoder's name for readers;   results  one for each repeat
    greedy    greedy decoding's result with the same seed and batch size for each of `results`, None if it did not run
    """

    label: str
    decoder: str
    batch_size: int
    scheme: str
    results: list[Result]
    greedy: list[Result | None]

    @property
    def first(self) -> Result:
        return self.results[0]

    def named(self, suffix: str) -> "Row":
        """The same under a longer name, to be shown next to another run's."""
        return replace(self, label=f"{self.label} {suffix}")


def label(decoder: str) -> str:
    """A decoder's name as readers see it."""
    plain = decoder.replace("_", " ")  # of a decoder that a package adds, or of a later version
    return getattr(catalog[decoder], "title", plain) if decoder in catalog else plain


def rows(results: Sequence[Result]) -> list[Row]:
    """The results in groups, in the order in which their first ones ran."""
    baselines = {(r.repeat, r.batch_size, r.scheme): r for r in results if r.decoder == BASELINE}
    groups: dict[tuple[str, int, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.decoder, result.batch_size, result.scheme), []).append(result)
    return [
        Row(
            label(decoder), decoder, size, scheme, group,
            [baselines.get((r.repeat, size, baseline_scheme(scheme))) for r in group],
        )
        for (decoder, size, scheme), group in groups.items()
    ]  # fmt: skip


def speed(result: Result, decoding: bool = False) -> float | None:
    """New tokens per second; `decoding` leaves out each batch's first round, which also reads the prompts (ems-sd.txt §4.1)."""
    if not decoding:
        return number(result, "tokens_per_second")
    tokens, seconds = number(result, "decode_tokens"), number(result, "decode_seconds")
    return _ratio(tokens, seconds)


def times_greedy(result: Result, greedy: Result | None, decoding: bool = False) -> float | None:
    """Tokens/s over greedy's, over the timings that both have; None if greedy did not run, or if one of them failed or was stopped."""
    if greedy is None or any(r.errors or r.cancelled for r in (result, greedy)):
        return None
    if not decoding and (found := timed_times_greedy(result, greedy)) is not None and found.laps > 1:
        return found.value
    return _ratio(speed(result, decoding), speed(greedy, decoding))


def mean_speed(results: Sequence[Result | None], decoding: bool = False) -> float | None:
    """Mean of `speed` over the repeats that did not fail; None if one of them has no such figure."""
    speeds = [speed(r, decoding) for r in results if r is not None and r.error is None]
    known = [s for s in speeds if s is not None]
    return fmean(known) if known and len(known) == len(speeds) else None


def mean_times_greedy(row: Row, decoding: bool = False) -> float | None:
    """A row's mean speed over greedy's mean speed."""
    return _ratio(mean_speed(row.results, decoding), mean_speed(row.greedy, decoding))


def timed_speed(result: Result, decoding: bool = False) -> Estimate | None:
    """`speed` with its range over the result's timings."""
    tokens = number(result, "decode_tokens" if decoding else "new_tokens")
    if not tokens:
        return None
    return laps.estimate(result, lambda seconds: tokens / seconds, laps.after_first if decoding else laps.whole)


def timed_times_greedy(result: Result, greedy: Result | None) -> Estimate | None:
    """`times_greedy` with its range over the complete cycles of both."""
    if greedy is None or any(r.errors or r.cancelled for r in (result, greedy)):
        return None
    tokens, base = number(result, "new_tokens"), number(greedy, "new_tokens")
    found = laps.ratio(result, greedy)
    return found.scaled(tokens / base) if found and tokens and base else None


def timed_joules(result: Result) -> Estimate | None:
    """Joules per token with their range over the timings that drew nothing."""
    tokens = number(result, "new_tokens")
    found = laps.estimate(result, lambda joules: joules, laps.joules)
    return found.scaled(1 / tokens) if found and tokens else None


def unsteady(row: Row) -> list[str]:
    """Why the figures of a row cannot be trusted, in sentences; [] if all is well."""
    both = zip(row.results, row.greedy, strict=True)
    reasons = [reason for result, greedy in both for reason in (*laps.faults(result), *laps.unsteady(result, greedy))]
    return list(dict.fromkeys(reasons))


def uncertain(row: Row) -> bool:
    """Whether timings of a row lie too far apart for its speed to be compared."""
    return any(laps.wide(result, greedy) is not None for result, greedy in zip(row.results, row.greedy, strict=True))


class Fastest(NamedTuple):
    """The decoder of a run that wrote most tokens per second, mean over its repeats.

    greedy   greedy's speed in the same kind of batch;   sure  see `quickest`;   stopped  whether the run was
    """

    decoder: str
    speed: float
    batch_size: int
    greedy: float | None
    sure: bool = True
    stopped: bool = False


def fastest(run: Run) -> Fastest | None:
    """None if no decoder of the run was timed."""
    row, sure = quickest(rows(run.results))
    if row is None or (speed := mean_speed(row.results)) is None:
        return None
    return Fastest(row.decoder, speed, row.batch_size, mean_speed(row.greedy), sure, run.cancelled)


def quickest(found: Sequence[Row]) -> tuple[Row | None, bool]:
    """The row with most tokens per second, None if none was timed; and whether that is sure: nothing disturbed any of the timings, and its
    range lies above all others."""
    speeds = [(mean_speed(row.results), row) for row in found]
    timed = [(speed, row) for speed, row in speeds if speed and math.isfinite(speed)]
    if not timed:
        return None, False
    _, first = max(timed, key=lambda each: each[0])
    (low, _), *others = [_reach(row) for row in (first, *(row for _, row in timed if row is not first))]
    return first, low > max((high for _, high in others), default=0.0) and not any(unsteady(row) for row in found)


def _reach(row: Row) -> tuple[float, float]:
    """Between which speeds a row's lies: one standard deviation over repeats, or the range of a single one's timings; what was timed once
    may lie anywhere."""
    speeds = [value for r in row.results if r.error is None and (value := speed(r))]
    if len(speeds) > 1:
        return fmean(speeds) - stdev(speeds), fmean(speeds) + stdev(speeds)
    timed = timed_speed(row.first)
    return (timed.low, timed.high) if timed and timed.laps > 1 else (0.0, math.inf)


def number(result: Result, name: str) -> float | None:
    """A metric; None if this run has no number of that name."""
    value = result.metrics.get(name)
    return value if isinstance(value, (int, float)) else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    """None if either is missing or zero, or if the ratio is not finite."""
    return part / whole if part and whole and math.isfinite(part / whole) else None


class BatchFigures:
    """The figures of a batch run by decoder, batch size and scheme."""

    def __init__(self, run: Run):
        self.rows = rows(run.results)
        self._rows = {(r.decoder, r.batch_size, r.scheme): r for r in self.rows}
        self.acceptances = {  # for each decoder and prompt the tokens that each round gained: they do not depend on the batch
            r.decoder: [s.gained for s in r.samples] for r in reversed(run.results) if any(s.gained for s in r.samples)
        }
        self.decoders = [d for d in run.decoders if d != BASELINE]
        self.sizes = sorted({r.batch_size for r in run.results})

    def schemes(self, decoder: str, decoding: bool = False) -> list[str]:
        """Those that were measured; with `decoding`, those whose speed is also known without the reading of prompts."""
        found = {
            r.scheme for r in self.rows if r.decoder == decoder and not (decoding and speed(r.first, True) is None)
        }
        return [scheme for scheme in SCHEMES if scheme in found]

    def row(self, decoder: str, size: int, scheme: str) -> Row | None:
        """At batch size 1 all schemes are the same."""
        return self._rows.get((decoder, size, scheme if size > 1 else ALONE))

    def speed(self, decoder: str, size: int, scheme: str, decoding: bool = False) -> float | None:
        """Tokens/s, mean over repeats; None if there is no such figure."""
        row = self.row(decoder, size, scheme)
        return mean_speed(row.results, decoding) if row else None

    def times_greedy(self, decoder: str, size: int, scheme: str, decoding: bool = False) -> float | None:
        """The same over greedy decoding's at the same batch size."""
        row = self.row(decoder, size, scheme)
        return mean_times_greedy(row, decoding) if row else None

    def mean_acceptances(self, decoder: str) -> list[float]:
        """Each sample's mean acceptance length (ems-sd.txt figure 5a, d)."""
        return [fmean(rounds) for rounds in self.acceptances.get(decoder, []) if rounds]

    def least_acceptance(self, decoder: str, size: int) -> float | None:
        """The least mean acceptance length of a static batch's samples, mean over the batches (figure 5b, e)."""
        means = self.mean_acceptances(decoder)
        return fmean(min(batch) for batch in batches(means, size)) if means else None

    def rounds(self, decoder: str, size: int) -> list[list[int]]:
        """For each round of each static batch the tokens that it gained every request still at work: tau_0 ... of ems-sd.txt eq. 8."""
        found = batches(self.acceptances.get(decoder, []), size)
        return [[g[i] for g in batch if i < len(g)] for batch in found for i in range(max(map(len, batch)))]
