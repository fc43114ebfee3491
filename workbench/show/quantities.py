"""The figures of a result as readers see them: name, help, how each is read, which way is better. Panels, tables, charts and the
terminal all read them here."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from workbench.runs import estimates
from workbench.runs.estimates import BatchFigures, Row
from workbench.runs.laps import Estimate
from workbench.runs.record import Result

MEGABYTE = 1e6
MISSING = "–"  # shown if there is no figure
UNSURE = "≈"  # before a speed that something disturbed


@dataclass(frozen=True)
class Quantity:
    """One figure.

    help      what it counts, as a formula;   value  of one result, with greedy's of the same seed beside it; None if it has none
    show      a value as text;   counts  what it was made from, as text;   better  "higher" or "lower" if one is better
    together  the figure of all repeats at once, for what has no spread over them; None takes the mean of each one's
    timed     for what the clock or the meter gives: its estimate over the result's timings, with its range
    """

    name: str
    label: str
    help: str
    value: Callable[[Result, Result | None], float | None]
    show: Callable[[float], str]
    counts: Callable[[Result], str] = lambda result: ""
    better: str | None = None
    together: Callable[[Row], float | None] | None = None
    timed: Callable[[Result, Result | None], Estimate | None] | None = None


def significant(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def megabytes(value: float) -> str:
    return f"{significant(value / MEGABYTE)} MB"


def times(value: float) -> str:
    return f"{value:.2f}×"


def percent(value: float) -> str:
    return f"{value:.0%}"


def number(result: Result, name: str) -> float | None:
    """A metric; None if this run has none of that name, or another than a number."""
    value = result.metrics.get(name)
    return value if isinstance(value, (int, float)) else None


def _metric(name: str) -> Callable[[Result, Result | None], float | None]:
    return lambda result, _: number(result, name)


def _per_token(result: Result, amount: float | None) -> float | None:
    tokens = number(result, "new_tokens")
    return amount / tokens if amount is not None and tokens else None


def _count(result: Result, name: str) -> str:
    value = number(result, name)
    return "?" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _of(part: str, whole: str, parts: str, wholes: str) -> Callable[[Result], str]:
    """ "55 of 77 drafted": two counts of the metrics in words."""
    return lambda r: f"{_count(r, part)} {parts} {_count(r, whole)} {wholes}"


def _timing(result: Result) -> str:
    seconds = number(result, "seconds")
    return "" if seconds is None else f"{_count(result, 'new_tokens')} tokens in {seconds:.2f} s"


def _read(result: Result) -> str:
    read = number(result, "bytes_read")
    return "" if read is None else f"{megabytes(read)} read"


QUANTITIES = (
    Quantity(
        "speed", "tokens/s", "new tokens / seconds of computing, drawing excluded",
        _metric("tokens_per_second"), significant, _timing, "higher", timed=estimates.timed_speed,
    ),
    Quantity(
        "x_greedy", "× greedy", "tokens/s over those of greedy in the same run, with the same seed",
        estimates.times_greedy, times, better="higher", timed=estimates.timed_times_greedy,
    ),
    Quantity(
        "decoding", "tokens/s after the prompt", "the same without the first round, which also reads the prompt",
        lambda r, _: estimates.speed(r, decoding=True), significant, better="higher",
        timed=lambda r, _: estimates.timed_speed(r, decoding=True),
    ),
    Quantity(
        "perplexity", "perplexity", "exp(−mean log p) of the new tokens under the plain target: lower is likelier text",
        _metric("perplexity"), "{:.2f}".format, lambda r: f"over {_count(r, 'new_tokens')} tokens", "lower",
    ),
    Quantity(
        "joules_per_token", "J/token", "measured energy / new tokens",
        lambda r, _: _per_token(r, r.energy.joules), significant, lambda r: r.energy.source, "lower",
        timed=lambda r, _: estimates.timed_joules(r),
    ),
    Quantity(
        "memory_per_token", "memory traffic/token", "bytes of weights and cache read by all passes / new tokens, counted exactly",
        lambda r, _: _per_token(r, number(r, "bytes_read")), megabytes, _read, "lower",
    ),
    Quantity(
        "block_efficiency", "block efficiency", "new tokens / target passes: what one pass of the large model yields",
        _metric("block_efficiency"), "{:.2f}".format, _of("new_tokens", "target_calls", "tokens /", "target passes"), "higher",
    ),
    Quantity(
        "acceptance", "acceptance", "draft tokens kept / draft tokens sent to the target",
        _metric("acceptance_rate"), percent, _of("accepted", "drafted", "of", "drafted"), "higher",
    ),
    Quantity(
        "peak_memory", "peak cache", "most bytes of one model's key-value cache in use at once",
        _metric("peak_cache_bytes"), megabytes, lambda r: f"{_count(r, 'peak_cache_rows')} rows", "lower",
    ),
)  # fmt: skip
BY_NAME = {q.name: q for q in QUANTITIES}


def _batch_times(decoding: bool) -> Callable[[Row], float | None]:
    """The mean speed over greedy's mean speed, as the charts draw it: both are over the same repeats."""

    def mean(results: Sequence[Result | None]) -> float | None:
        speeds = [estimates.speed(r, decoding) for r in results if r is not None and r.error is None]
        return statistics.fmean(speeds) if speeds and None not in speeds else None

    def ratio(row: Row) -> float | None:
        own, base = mean(row.results), mean(row.greedy)
        return own / base if own and base else None

    return ratio


def _over_repeats(name: str, gather: Callable[[Sequence[float]], float]) -> Callable[[Row], float | None]:
    def together(row: Row) -> float | None:
        values = [v for r in row.results if (v := number(r, name)) is not None]
        return gather(values) if values else None

    return together


def _differing(result: Result, _: Result | None = None) -> float | None:
    """Outputs that are not those of their reference; the first of its law has none, and is none that differs."""
    if result.error:
        return None
    return result.agreement.differing if result.agreement else 0


def _all_differing(row: Row) -> float | None:
    found = [n for r in row.results if (n := _differing(r)) is not None]
    return sum(found) if found else None


PADDING = Quantity(
    "padding", "padding", "pads / longest acceptance of a round, mean", _metric("padding_ratio"), percent, better="lower"
)  # fmt: skip
BATCH_QUANTITIES = (
    replace(BY_NAME["speed"], help="new tokens of all requests / seconds of computing"),
    replace(
        BY_NAME["x_greedy"], label="x greedy", help="tokens/s over greedy's at the same batch size",
        together=_batch_times(decoding=False),
    ),
    Quantity(
        "decoding", "decoding", "tokens/s without each batch's first round, which reads the prompts",
        lambda r, _: estimates.speed(r, decoding=True), significant, better="higher",
    ),
    Quantity(
        "decoding_x_greedy", "decoding x greedy", "the same over greedy's at the same batch size",
        lambda r, greedy: estimates.times_greedy(r, greedy, decoding=True), times, better="higher",
        together=_batch_times(decoding=True),
    ),
    PADDING,
    Quantity(
        "pad_tokens", "pad tokens", "tokens computed only to fill up, by both models",
        _metric("padded_tokens"), "{:,}".format, better="lower", together=lambda row: number(row.first, "padded_tokens"),
    ),
    Quantity(
        "pad_rows", "pad rows", "cache rows kept only to fill up, by both models",
        _metric("padded_rows"), "{:,}".format, better="lower", together=lambda row: number(row.first, "padded_rows"),
    ),
    Quantity(
        "at_once", "at once", "requests in flight at most; fewer than the batch if a memory budget lets some wait",
        _metric("at_once"), "{:g}".format, together=_over_repeats("at_once", max),
    ),
    Quantity(
        "peak_memory", "cache", "the most that a single request held, of one model",
        _metric("peak_cache_bytes"), megabytes, better="lower", together=_over_repeats("peak_cache_bytes", max),
    ),
    Quantity(
        "same", "same", "whether the output equals the first scheme's",
        _differing, lambda n: f"{n:g} differ" if n else "yes", together=_all_differing,
    ),
    BY_NAME["joules_per_token"],
)  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """A figure of a row: its mean over repeats with the sample standard deviation, or, of a single repeat that was timed several times,
    the estimate with its range. What there is none of is None."""

    mean: float
    deviation: float | None = None
    range: Estimate | None = None

    @property
    def below(self) -> float:
        """How far the figure may lie lower, by its range or by one deviation."""
        return self.mean - self.range.low if self.range else self.deviation or 0.0

    @property
    def above(self) -> float:
        return self.range.high - self.mean if self.range else self.deviation or 0.0


def spread(quantity: Quantity, row: Row) -> Spread | None:
    """Over the repeats of a row; None if no repeat has the figure."""
    if quantity.together is not None and len(row.results) > 1:
        value = quantity.together(row)
        return None if value is None else Spread(value)
    both = [(r, greedy) for r, greedy in zip(row.results, row.greedy, strict=True) if r.error is None]
    values = [v for r, greedy in both if (v := quantity.value(r, greedy)) is not None]
    if not values:
        return None
    if len(values) > 1:
        return Spread(statistics.fmean(values), statistics.stdev(values))
    timed = quantity.timed(*both[0]) if quantity.timed and len(both) == 1 else None
    return Spread(values[0], None, timed if timed and timed.low < timed.high else None)


def figure(quantity: Quantity, row: Row, sure: bool = True) -> str:
    """The figure as text, with its deviation after ± if there are repeats; "–" if there is none. One that is not `sure` says so."""
    found = spread(quantity, row)
    if found is None:
        return MISSING
    text = quantity.show(found.mean)
    if quantity.timed is not None and not sure:
        text = f"{UNSURE}{text}"
    return text if found.deviation is None else f"{text} ± {quantity.show(found.deviation)}"


def shown(quantity: Quantity, row: Row) -> str:
    """The same for tables, with its range in brackets if it was timed several times."""
    found = spread(quantity, row)
    text = figure(quantity, row, quantity.timed is None or not estimates.unsteady(row))
    return f"{text} ({range_text(quantity, found.range)})" if found and found.range else text


def timing_notes(row: Row) -> list[str]:
    """What a reader of a row's speeds must know, in sentences: why they cannot be trusted, and what went wrong in its timings."""
    reasons = estimates.unsteady(row)
    remarks = [remark for result in row.results for remark in result.remarks]
    return ([f"Unsteady: {'; '.join(reasons)}."] if reasons else []) + [f"{remark.capitalize()}." for remark in remarks]


def range_text(quantity: Quantity, found: Estimate) -> str:
    """ "248 to 255": between which the figure lies."""
    return f"{quantity.show(found.low)} to {quantity.show(found.high)}"


def padding_ratio(figures: BatchFigures, decoder: str, size: int) -> float | None:
    """That of the vanilla scheme, mean over repeats (ems-sd.txt eq. 10); None if it was not measured."""
    row = figures.row(decoder, size, "vanilla")
    found = row and spread(PADDING, row)
    return found.mean if found else None
