"""The figures of a result as readers see them, in panels, tables, charts and the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from workbench.runs import estimates
from workbench.runs.estimates import Row, number
from workbench.runs.laps import Estimate
from workbench.runs.record import Result
from workbench.show.sums import enough, gives

MEGABYTE = 1e6


@dataclass(frozen=True)
class Quantity:
    """One figure.

    Attributes:
        name: its name in code and files
        label: its name for readers
        help: its definition, as a formula
        value: the figure of a result, given greedy's result with the same seed; None if it has none
        show: a value as text, with a number of digits more than usual
        counts: the counts behind it, as text
        better: "higher" or "lower" if one is better
        together: the figure of all repeats at once, if it has no spread over them; None takes their
            mean
        timed: for a figure of the clock or the meter, the estimate over a result's timings, with
            its range
        over_greedy: whether greedy's timings are in it too
    """

    name: str
    label: str
    help: str
    value: Callable[[Result, Result | None], float | None]
    show: Callable[..., str]
    counts: Callable[[Result], str] = lambda result: ""
    better: str | None = None
    together: Callable[[Row], float | None] | None = None
    timed: Callable[[Result, Result | None], Estimate | None] | None = None
    over_greedy: bool = False


def significant(value: float, more: int = 0) -> str:
    return f"{value:,.{more}f}" if abs(value) >= 100 else f"{value:.{3 + more}g}"


def two_decimals(value: float, more: int = 0) -> str:
    return f"{value:.{2 + more}f}"


def megabytes(value: float, more: int = 0) -> str:
    return f"{significant(value / MEGABYTE, more)} MB"


def times(value: float, more: int = 0) -> str:
    return f"{two_decimals(value, more)}×"


def percent(value: float, more: int = 0) -> str:
    return f"{value:.{more}%}"


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
    """A model that is not packed may take several passes where the count has one."""
    text, passes = (
        _of("new_tokens", "target_calls", "tokens /", "passes")(result),
        number(result, "target_passes"),
    )
    more = passes is not None and passes > (number(result, "target_calls") or 0) + (
        number(result, "prefill_calls") or 0
    )
    return f"{text}, {passes} taken one branch at a time" if more else text


def _timing(result: Result) -> str:
    tokens, seconds, speed = (
        number(result, name) for name in ("new_tokens", "seconds", "tokens_per_second")
    )
    if tokens is None or seconds is None:
        return ""
    shown = significant(speed) if speed else ""
    [text] = enough(lambda s: gives(shown, tokens / s), lambda more: two_decimals(seconds, more))
    return f"{_count(result, 'new_tokens')} tokens in {text} s"


def _read(result: Result) -> str:
    read, tokens = number(result, "bytes_read"), number(result, "new_tokens")
    if read is None:
        return ""
    each = megabytes(read / tokens) if tokens else ""
    [text] = enough(
        lambda all: not tokens or gives(each, all / tokens), lambda more: megabytes(read, more)
    )
    return f"{text} read"


QUANTITIES = (
    Quantity(
        "speed", "tokens/s", "new tokens / seconds of computing, drawing excluded",
        _metric("tokens_per_second"), significant, _timing, "higher",
        timed=lambda r, _: estimates.timed_speed(r),
    ),
    Quantity(
        "x_greedy", "× greedy", "tokens/s divided by greedy's, in the same run with the same seed",
        estimates.times_greedy, times, better="higher", timed=estimates.timed_times_greedy,
        over_greedy=True,
    ),
    Quantity(
        "decoding", "tokens/s after the prompt",
        "tokens/s without the first round, which also reads the prompt",
        lambda r, _: estimates.speed(r, decoding=True), significant, better="higher",
        timed=lambda r, _: estimates.timed_speed(r, decoding=True),
    ),
    Quantity(
        "perplexity", "perplexity",
        "exp(−mean log p) of the new tokens under the plain target: lower means likelier text",
        _metric("perplexity"), two_decimals, lambda r: f"over {_count(r, 'new_tokens')} tokens",
        "lower",
    ),
    Quantity(
        "joules_per_token", "J/token", "measured energy / new tokens",
        lambda r, _: _per_token(r, r.energy.joules), significant, lambda r: r.energy.source,
        "lower",
        timed=lambda r, _: estimates.timed_joules(r),
    ),
    Quantity(
        "memory_per_token", "memory read per token",
        "bytes of weights and cache read by all passes / new tokens, counted exactly",
        lambda r, _: _per_token(r, number(r, "bytes_read")), megabytes, _read, "lower",
    ),
    Quantity(
        "block_efficiency", "tokens per large-model pass",
        "new tokens / passes of the large model (block efficiency)",
        _metric("block_efficiency"), two_decimals, _target_passes, "higher",
    ),
    Quantity(
        "acceptance", "drafts used", "draft tokens kept / draft tokens sent to the large model",
        _metric("acceptance_rate"), percent, _of("accepted", "drafted", "of", "drafted"),
        "higher",
    ),
    Quantity(
        "alpha", "alpha",
        "draft tokens kept / draft tokens that the rule tested: those after a refused one are not "
        "tested",
        _metric("alpha"), percent, _of("accepted", "tested", "of", "tested"), "higher",
    ),
    Quantity(
        "peak_memory", "peak cache", "most bytes of one model's key-value cache in use at once",
        _metric("peak_cache_bytes"), megabytes,
        lambda r: f"{_count(r, 'peak_cache_rows')} cached tokens", "lower",
    ),
)  # fmt: skip
BY_NAME = {q.name: q for q in QUANTITIES}


def _over_repeats(
    value: Callable[[Result, Result | None], float | None],
    gather: Callable[[Sequence[float]], float],
) -> Callable[[Row], float | None]:
    def together(row: Row) -> float | None:
        values = [v for r in row.results if (v := value(r, None)) is not None]
        return gather(values) if values else None

    return together


def _differing(result: Result, _: Result | None) -> float | None:
    """Outputs that differ from their reference; 0 for the first result of a law, which has none."""
    if result.error:
        return None
    return result.agreement.differing if result.agreement else 0


PADDING = Quantity(
    "padding", "padding", "pads / longest acceptance of a round, mean",
    _metric("padding_ratio"), percent, better="lower",
)  # fmt: skip
BATCH_QUANTITIES = (
    replace(BY_NAME["speed"], help="new tokens of all requests / seconds of computing"),
    replace(
        BY_NAME["x_greedy"], help="tokens/s divided by greedy's at the same batch size",
        together=estimates.mean_times_greedy,
    ),
    Quantity(
        "decoding", "decoding",
        "tokens/s without each batch's first round, which reads the prompts",
        lambda r, _: estimates.speed(r, decoding=True), significant, better="higher",
        timed=lambda r, _: estimates.timed_speed(r, decoding=True),
    ),
    Quantity(
        "decoding_x_greedy", "decoding × greedy",
        "speed of decoding divided by greedy's at the same batch size",
        lambda r, greedy: estimates.times_greedy(r, greedy, decoding=True), times, better="higher",
        together=lambda row: estimates.mean_times_greedy(row, decoding=True),
        timed=lambda r, greedy: estimates.timed_times_greedy(r, greedy, decoding=True),
        over_greedy=True,
    ),
    PADDING,
    Quantity(
        "pad_tokens", "pad tokens", "tokens that both models computed only as padding",
        _metric("padded_tokens"), "{:,}".format, better="lower",
        together=lambda row: number(row.first, "padded_tokens"),
    ),
    Quantity(
        "pad_rows", "pad rows", "cache rows that both models kept only as padding",
        _metric("padded_rows"), "{:,}".format, better="lower",
        together=lambda row: number(row.first, "padded_rows"),
    ),
    Quantity(
        "at_once", "at once",
        "most requests in flight; fewer than the batch if a memory budget makes some wait",
        _metric("at_once"), "{:g}".format, together=_over_repeats(_metric("at_once"), max),
    ),
    Quantity(
        "peak_memory", "cache", "largest cache of a single request, of one model",
        _metric("peak_cache_bytes"), megabytes, better="lower",
        together=_over_repeats(_metric("peak_cache_bytes"), max),
    ),
    Quantity(
        "same", "same", "whether the output equals the first scheme's",
        _differing, lambda n, more=0: f"{n:g} differ" if n else "yes",
        together=_over_repeats(_differing, sum),
    ),
    BY_NAME["joules_per_token"],
)  # fmt: skip
