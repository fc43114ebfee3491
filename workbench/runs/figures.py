"""Figures from results, in rows with greedy's result of the same seed; the fastest, and places."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from workbench.runs import timing
from workbench.runs.record import Result, Run
from workbench.studies.settings import known, method_of
from workbench.studies.study import ALONE, BASELINE, SCHEMES, baseline_scheme, batches


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: a decoder at one batch size in one scheme, over all repeats.

    Attributes:
        label: the decoder's name for readers
        decoder: its id
        batch_size: requests decoded at once
        scheme: how they share a batch
        results: one for each repeat
        greedy: for each of `results`, greedy decoding's result with the same seed and batch size;
            None if it did not run
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


def label(decoder: str) -> str:
    # A package may add decoders that have no title, and a later version decoders that are not here.
    plain = decoder.replace("_", " ")
    return getattr(method_of(decoder), "title", plain) if known(decoder) else plain


def rows(results: Sequence[Result]) -> list[Row]:
    """The results in groups, in the order in which the first of each group ran."""
    greedy = {(r.repeat, r.batch_size, r.scheme): r for r in results if r.decoder == BASELINE}
    groups: dict[tuple[str, str, int, str], list[Result]] = {}
    for result in results:
        key = (label(result.decoder), result.decoder, result.batch_size, result.scheme)
        groups.setdefault(key, []).append(result)
    return [
        Row(*key, group, [greedy.get((r.repeat, key[2], baseline_scheme(key[3]))) for r in group])
        for key, group in groups.items()
    ]


def speed(result: Result, decoding: bool = False) -> float | None:
    """New tokens per second.

    Args:
        decoding: leave out each batch's first round, which also reads the prompts

    Source:
        Ni et al. 2024 (EMS-SD, arXiv 2405.07542), section 4.1, for `decoding`.
    """
    if not decoding:
        return number(result, "tokens_per_second")
    tokens, seconds = number(result, "decode_tokens"), number(result, "decode_seconds")
    return _ratio(tokens, seconds)


def times_greedy(result: Result, greedy: Result | None, decoding: bool = False) -> float | None:
    """Tokens/s divided by greedy's, over the timings that both have.

    Returns:
        None if greedy did not run, or if one of them failed or was stopped
    """
    if greedy is None or any(r.errors or r.cancelled for r in (result, greedy)):
        return None
    if (
        not decoding
        and (timed := timed_times_greedy(result, greedy)) is not None
        and timed.laps > 1
    ):
        return timed.value
    return _ratio(speed(result, decoding), speed(greedy, decoding))


def mean_speed(results: Sequence[Result | None], decoding: bool = False) -> float | None:
    """Mean `speed` over the repeats that did not fail; None if one of them has no speed."""
    speeds = [speed(r, decoding) for r in results if r is not None and r.error is None]
    known = [s for s in speeds if s is not None]
    return fmean(known) if known and len(known) == len(speeds) else None


def mean_times_greedy(row: Row, decoding: bool = False) -> float | None:
    return _ratio(mean_speed(row.results, decoding), mean_speed(row.greedy, decoding))


def timed_speed(result: Result, decoding: bool = False) -> timing.Estimate | None:
    tokens = number(result, "decode_tokens" if decoding else "new_tokens")
    if not tokens:
        return None
    return timing.estimate(
        result, lambda seconds: tokens / seconds, timing.after_first if decoding else timing.whole
    )


def timed_times_greedy(
    result: Result, greedy: Result | None, decoding: bool = False
) -> timing.Estimate | None:
    if greedy is None or any(r.errors or r.cancelled for r in (result, greedy)):
        return None
    tokens, base = (
        number(r, "decode_tokens" if decoding else "new_tokens") for r in (result, greedy)
    )
    ratio = timing.ratio(result, greedy, timing.after_first if decoding else timing.whole)
    return ratio.scaled(tokens / base) if ratio and tokens and base else None


def timed_joules(result: Result) -> timing.Estimate | None:
    """Joules per token with their range over the timings that drew nothing."""
    tokens = number(result, "new_tokens")
    joules = timing.estimate(result, lambda joules: joules, timing.joules)
    return joules.scaled(1 / tokens) if joules and tokens else None


def unsteady(row: Row) -> list[str]:
    """The reasons why the figures of a row cannot be trusted, in sentences; [] if all is well."""
    reasons = [
        reason
        for result, greedy in zip(row.results, row.greedy, strict=True)
        for reason in timing.unsteady(result, greedy)
    ]
    return list(dict.fromkeys(reasons))


def uncertain(row: Row) -> bool:
    return any(
        timing.wide(result, greedy) is not None
        for result, greedy in zip(row.results, row.greedy, strict=True)
    )


def number(result: Result, name: str) -> float | None:
    value = result.metrics.get(name)
    return value if isinstance(value, (int, float)) else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    """The ratio; None if either number is missing or zero, or if the ratio is not finite."""
    return part / whole if part and whole and math.isfinite(part / whole) else None


class BatchFigures:
    """The figures of a batch run by decoder, batch size and scheme.

    Attributes:
        rows: the rows of its results
        acceptances: for each decoder and prompt, the tokens that each round gained
        decoders: its decoders, greedy aside
        sizes: its batch sizes

    Source:
        Ni et al. 2024 (EMS-SD, arXiv 2405.07542).
    """

    def __init__(self, run: Run):
        self.rows = rows(run.results)
        self._rows = {(r.decoder, r.batch_size, r.scheme): r for r in self.rows}
        # They do not depend on the batch.
        self.acceptances = {
            r.decoder: [s.gained for s in r.samples]
            for r in reversed(run.results)
            if any(s.gained for s in r.samples)
        }
        self.decoders = [d for d in run.decoders if d != BASELINE]
        self.sizes = sorted({r.batch_size for r in run.results})

    def schemes(self, decoder: str, decoding: bool = False) -> list[str]:
        """The schemes that were measured; with `decoding`, those with a speed of decoding."""
        names = {
            r.scheme
            for r in self.rows
            if r.decoder == decoder and not (decoding and speed(r.first, True) is None)
        }
        return [scheme for scheme in SCHEMES if scheme in names]

    def row(self, decoder: str, size: int, scheme: str) -> Row | None:
        return self._rows.get((decoder, size, scheme if size > 1 else ALONE))

    def times_greedy(
        self, decoder: str, size: int, scheme: str, decoding: bool = False
    ) -> float | None:
        row = self.row(decoder, size, scheme)
        return mean_times_greedy(row, decoding) if row else None

    def mean_acceptances(self, decoder: str) -> list[float]:
        """Each sample's mean acceptance length (figure 5a, d)."""
        return [fmean(rounds) for rounds in self.acceptances.get(decoder, []) if rounds]

    def least_acceptance(self, decoder: str, size: int) -> float | None:
        """The least mean acceptance of a static batch, mean over the batches (figure 5b, e)."""
        means = self.mean_acceptances(decoder)
        return fmean(min(batch) for batch in batches(means, size)) if means else None


UNKNOWN = (0.0, math.inf)  # the range of a figure that may lie anywhere


def quickest(lines: Sequence[Row]) -> tuple[Row | None, bool]:
    """The row with most tokens per second.

    Returns:
        (row, sure): the row, None if none was timed, and whether its range lies above all others
    """
    timed = [row for row in lines if _mean(row)]
    if not timed:
        return None, False
    first = max(timed, key=_mean)
    low, _ = reach = _reach(first)
    above = all(low > _reach(other)[1] for other in timed if other is not first)
    return first, reach != UNKNOWN and above


def _mean(row: Row) -> float:
    """Its mean speed; 0 if that is not known."""
    speed = mean_speed(row.results) or 0.0
    return speed if math.isfinite(speed) else 0.0


def _reach(row: Row) -> tuple[float, float]:
    """The range of a row's speed.

    It is one standard deviation over repeats, or the range of a single repeat's timings; a row that
    was timed once or was disturbed may lie anywhere.
    """
    speeds = [value for r in row.results if r.error is None and (value := speed(r))]
    if len(speeds) > 1 and not unsteady(row):
        return fmean(speeds) - stdev(speeds), fmean(speeds) + stdev(speeds)
    timed = timed_speed(row.first)
    return (timed.low, timed.high) if timed and timed.laps > 1 and not unsteady(row) else UNKNOWN
