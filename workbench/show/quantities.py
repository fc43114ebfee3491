"""The figures of a result as readers see them: name, help, how each is read, which way is better. Panels, tables, charts and the
terminal all read them here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from workbench.runs import estimates
from workbench.runs.estimates import Row, number
from workbench.runs.laps import Estimate
from workbench.runs.record import Result

MEGABYTE = 1e6


@dataclass(frozen=True)
class Quantity:
    """One figure.

    help      what it counts, as a formula;   value  of a result and greedy's result with the same seed; None if it has none
    show      a value as text;   counts  what it was made from, as text;   better  "higher" or "lower" if one is better
    together  of all repeats at once, for a figure that has no spread over them; None takes the mean over the repeats
    timed     for what the clock or the meter gives: the estimate over a result's timings, with its range
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


def _target_passes(result: Result) -> str:
    """A model that is not packed may take several passes for what counts as one."""
    text, passes = _of("new_tokens", "target_calls", "tokens /", "passes")(result), number(result, "target_passes")
    more = passes is not None and passes > (number(result, "target_calls") or 0) + (
        number(result, "prefill_calls") or 0
    )
    return f"{text}, {passes} taken one branch at a time" if more else text


def _timing(result: Result) -> str:
    seconds = number(result, "seconds")
    return "" if seconds is None else f"{_count(result, 'new_tokens')} tokens in {seconds:.2f} s"


def _read(result: Result) -> str:
    read = number(result, "bytes_read")
    return "" if read is None else f"{megabytes(read)} read"


QUANTITIES = (
    Quantity(
        "speed", "tokens/s", "new tokens / seconds of computing, drawing excluded",
        _metric("tokens_per_second"), significant, _timing, "higher", timed=lambda r, _: estimates.timed_speed(r),
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
        "memory_per_token", "memory read per token", "bytes of weights and cache read by all passes / new tokens, counted exactly",
        lambda r, _: _per_token(r, number(r, "bytes_read")), megabytes, _read, "lower",
    ),
    Quantity(
        "block_efficiency", "tokens per large-model pass", "new tokens / passes of the large model (block efficiency)",
        _metric("block_efficiency"), "{:.2f}".format, _target_passes, "higher",
    ),
    Quantity(
        "acceptance", "drafts used", "draft tokens kept / draft tokens sent to the large model",
        _metric("acceptance_rate"), percent, _of("accepted", "drafted", "of", "drafted"), "higher",
    ),
    Quantity(
        "alpha", "alpha", "draft tokens kept / draft tokens that the rule tested: those after a refused one are not tested",
        _metric("alpha"), percent, _of("accepted", "tested", "of", "tested"), "higher",
    ),
    Quantity(
        "peak_memory", "peak cache", "most bytes of one model's key-value cache in use at once",
        _metric("peak_cache_bytes"), megabytes, lambda r: f"{_count(r, 'peak_cache_rows')} cached tokens", "lower",
    ),
)  # fmt: skip
BY_NAME = {q.name: q for q in QUANTITIES}


def _over_repeats(name: str, gather: Callable[[Sequence[float]], float]) -> Callable[[Row], float | None]:
    def together(row: Row) -> float | None:
        values = [v for r in row.results if (v := number(r, name)) is not None]
        return gather(values) if values else None

    return together


def _differing(result: Result, _: Result | None) -> float | None:
    """How many outputs differ from their reference; 0 for the first result of a law, which has no reference."""
    if result.error:
        return None
    return result.agreement.differing if result.agreement else 0


def _all_differing(row: Row) -> float | None:
    found = [n for r in row.results if (n := _differing(r, None)) is not None]
    return sum(found) if found else None


PADDING = Quantity(
    "padding", "padding", "pads / longest acceptance of a round, mean", _metric("padding_ratio"), percent, better="lower"
)  # fmt: skip
BATCH_QUANTITIES = (
    replace(BY_NAME["speed"], help="new tokens of all requests / seconds of computing"),
    replace(
        BY_NAME["x_greedy"], help="tokens/s over greedy's at the same batch size", together=estimates.mean_times_greedy,
    ),
    Quantity(
        "decoding", "decoding", "tokens/s without each batch's first round, which reads the prompts",
        lambda r, _: estimates.speed(r, decoding=True), significant, better="higher",
    ),
    Quantity(
        "decoding_x_greedy", "decoding × greedy", "the same over greedy's at the same batch size",
        lambda r, greedy: estimates.times_greedy(r, greedy, decoding=True), times, better="higher",
        together=lambda row: estimates.mean_times_greedy(row, decoding=True),
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
        "at_once", "at once", "requests in flight at most; fewer than the batch if a memory budget makes some wait",
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
