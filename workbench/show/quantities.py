"""The figures of results and of batches as readers see them: names, units, rounding and ranges.

They are the same on the page, in charts, files, plans and reports. A figure of a row is text over
its repeats, with its deviation, and with ≈ if it is in doubt.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.runs import timing
from workbench.runs.figures import (
    BatchFigures,
    Row,
    mean_times_greedy,
    number,
    speed,
    timed_joules,
    timed_speed,
    timed_times_greedy,
    times_greedy,
    unsteady,
)
from workbench.runs.record import Result
from workbench.studies.study import MEGABYTE

REPEATED = 4  # tokens
KEPT = "draft tokens kept, as a share of those that the rule tested and of all that were drafted"


@dataclass(frozen=True)
class Ratio:
    """A figure of many results, `finish` of the sum of `above` divided by the sum of `below`."""

    above: Callable[[Result], float]
    below: Callable[[Result], float]
    finish: Callable[[Any], Any] = lambda quotient: quotient


@dataclass(frozen=True)
class Quantity:
    """One figure.

    Attributes:
        name: its name in code and files
        label: its name for readers
        help: its definition, as a formula
        value: the figure of a result, given greedy's result with the same seed; None if it has none
        show: a value as text
        counts: the counts behind it, as text
        better: "higher" or "lower" if one is better
        together: the figure of all repeats at once, if it has no spread over them; None takes their
            mean
        timed: for a figure of the clock or the meter, the estimate over a result's timings, with
            its range
        over_greedy: whether greedy's timings are in it too
        ratio: for experiments, the same figure of many results
        meaning: words for their reports, which figures may share
        ranged: whether their tables show its interval
    """

    name: str
    label: str
    help: str
    value: Callable[[Result, Result | None], float | None]
    show: Callable[[float], str]
    counts: Callable[[Result], str] = lambda result: ""
    better: str | None = None
    together: Callable[[Row], float | None] | None = None
    timed: Callable[[Result, Result | None], timing.Estimate | None] | None = None
    over_greedy: bool = False
    ratio: Ratio | None = None
    meaning: str = ""
    ranged: bool = False


def significant(value: float, more: int = 0) -> str:
    return f"{value:,.{more}f}" if abs(value) >= 100 else f"{value:.{3 + more}g}"


def two_decimals(value: float) -> str:
    return f"{value:.2f}"


def megabytes(value: float) -> str:
    return f"{significant(value / MEGABYTE)} MB"


def milliseconds(value: float) -> str:
    return f"{significant(1e3 * value)} ms"


def times(value: float) -> str:
    return f"{two_decimals(value)}×"


def percent(value: float) -> str:
    return f"{value:.0%}"


def metric(name: str) -> Callable[[Result, Result | None], float | None]:
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
    """With digits enough for a reader who divides."""
    seconds = number(result, "seconds")
    tokens = _count(result, "new_tokens")
    return "" if seconds is None else f"{tokens} tokens in {significant(seconds, 1)} s"


def _read(result: Result) -> str:
    read = number(result, "bytes_read")
    return "" if read is None else f"{megabytes(read)} read"


def _sum(name: str) -> Callable[[Result], float]:
    return lambda result: number(result, name) or 0.0


def _tokens_with(name: str) -> Callable[[Result], float]:
    return lambda result: _sum("new_tokens")(result) if number(result, name) else 0.0


def _nats(result: Result) -> float:
    perplexity = number(result, "perplexity")
    return float(np.log(perplexity) * result.metrics["new_tokens"]) if perplexity else 0.0


def _repeated(result: Result) -> float | None:
    """The share of runs of REPEATED tokens that occurred before in the text.

    Source:
        Welleck et al. 2020 (unlikelihood training, arXiv 1908.04319), seq-rep-4.
    """
    ids = [token.id for token in result.alone.tokens if number(result, "new_tokens")]
    runs = list(zip(*(ids[i:] for i in range(REPEATED)), strict=False))
    return 1 - len(set(runs)) / len(runs) if runs else None


def _scores(result: Result) -> list[float]:
    return [float(s.scores["score"]) for s in result.samples if s.scores and "score" in s.scores]


QUANTITIES = (
    Quantity(
        "speed", "tokens/s", "new tokens / seconds of computing, drawing excluded",
        metric("tokens_per_second"), significant, _timing, "higher",
        timed=lambda r, _: timed_speed(r),
        ratio=Ratio(_sum("new_tokens"), _sum("seconds")), ranged=True,
    ),
    Quantity(
        "x_greedy", "× greedy", "tokens/s divided by greedy's, in the same run with the same seed",
        times_greedy, times, better="higher", timed=timed_times_greedy,
        over_greedy=True, ranged=True,
        meaning="tokens/s divided by those of greedy decoding, which took turns on the same "
        "prompts",
    ),
    Quantity(
        "decoding", "tokens/s after the prompt",
        "tokens/s without the first round, which also reads the prompt",
        lambda r, _: speed(r, decoding=True), significant, better="higher",
        timed=lambda r, _: timed_speed(r, decoding=True),
    ),
    Quantity(
        "first_token", "time to first token",
        "milliseconds of the first round, which also reads the prompt",
        lambda r, _: timing.first(r.laps), milliseconds, better="lower",
        timed=lambda r, _: timing.estimate(r, lambda seconds: seconds, timing.first),
    ),
    Quantity(
        "perplexity", "perplexity",
        "exp(−mean log p) of the new tokens under the plain target: lower is likelier to the "
        "model; loops score well too",
        metric("perplexity"), two_decimals, lambda r: f"over {_count(r, 'new_tokens')} tokens",
        "lower", ratio=Ratio(_nats, _tokens_with("perplexity"), np.exp), ranged=True,
        meaning="of the outputs under the target's own distribution, without temperature, top-k "
        "and top-p; lower means likelier",
    ),
    Quantity(
        "repetition", "repeated",
        "share of the text's runs of 4 tokens that occurred in it before",
        lambda r, _: _repeated(r), percent, better="lower",
    ),
    Quantity(
        "joules_per_token", "J/token", "measured energy / new tokens",
        lambda r, _: _per_token(r, r.energy.joules), significant, lambda r: r.energy.source,
        "lower",
        timed=lambda r, _: timed_joules(r),
        ratio=Ratio(_sum("joules"), _tokens_with("joules")),
        meaning="energy, if the machine has a meter",
    ),
    Quantity(
        "memory_per_token", "memory read per token",
        "bytes of weights and cache read by all passes / new tokens, counted exactly",
        lambda r, _: _per_token(r, number(r, "bytes_read")), megabytes, _read, "lower",
    ),
    Quantity(
        "block_efficiency", "tokens per large-model pass",
        "new tokens / passes of the large model (block efficiency)",
        metric("block_efficiency"), two_decimals,
        _of("new_tokens", "target_calls", "tokens /", "passes"), "higher",
        ratio=Ratio(_sum("new_tokens"), _sum("target_calls")), ranged=True,
        meaning="new tokens per pass of the target",
    ),
    Quantity(
        "acceptance", "drafts used", "draft tokens kept / draft tokens sent to the large model",
        metric("acceptance_rate"), percent, _of("accepted", "drafted", "of", "drafted"),
        "higher", ratio=Ratio(_sum("accepted"), _sum("drafted")), meaning=KEPT,
    ),
    Quantity(
        "alpha", "alpha",
        "draft tokens kept / draft tokens that the rule tested: those after a refused one are not "
        "tested",
        metric("alpha"), percent, _of("accepted", "tested", "of", "tested"), "higher",
        ratio=Ratio(_sum("accepted"), _sum("tested")), meaning=KEPT,
    ),
    Quantity(
        "peak_memory", "peak cache", "most bytes of one model's key-value cache in use at once",
        metric("peak_cache_bytes"), megabytes,
        lambda r: f"{_count(r, 'peak_cache_rows')} cached tokens", "lower",
        ratio=Ratio(lambda r: _sum("peak_cache_bytes")(r) / MEGABYTE, lambda r: 1.0),
        meaning="the largest size of the keys and values",
    ),
)  # fmt: skip
BY_NAME = {q.name: q for q in QUANTITIES}
SCORE = Quantity(
    "score", "score", "what the scorer of the prompts' set gives an output, mean",
    lambda r, _: statistics.fmean(_scores(r)) if _scores(r) else None, significant, better="higher",
    ratio=Ratio(lambda r: sum(_scores(r)), lambda r: float(len(_scores(r)))), ranged=True,
)  # fmt: skip
# The figures that plans of experiments may name, in the order of their tables.
FIGURES = {
    "tokens/s": BY_NAME["speed"], "x greedy": BY_NAME["x_greedy"],
    "perplexity": BY_NAME["perplexity"], "J/token": BY_NAME["joules_per_token"],
    "tokens/call": BY_NAME["block_efficiency"], "accepted/tested": BY_NAME["alpha"],
    "accepted/drafted": BY_NAME["acceptance"], "score": SCORE, "MB cache": BY_NAME["peak_memory"],
}  # fmt: skip


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
    metric("padding_ratio"), percent, better="lower",
)  # fmt: skip
BATCH_QUANTITIES = (
    replace(BY_NAME["speed"], help="new tokens of all requests / seconds of computing"),
    replace(
        BY_NAME["x_greedy"], help="tokens/s divided by greedy's at the same batch size",
        together=mean_times_greedy,
    ),
    Quantity(
        "decoding", "decoding",
        "tokens/s without each batch's first round, which reads the prompts",
        lambda r, _: speed(r, decoding=True), significant, better="higher",
        timed=lambda r, _: timed_speed(r, decoding=True),
    ),
    Quantity(
        "decoding_x_greedy", "decoding × greedy",
        "speed of decoding divided by greedy's at the same batch size",
        lambda r, greedy: times_greedy(r, greedy, decoding=True), times, better="higher",
        together=lambda row: mean_times_greedy(row, decoding=True),
        timed=lambda r, greedy: timed_times_greedy(r, greedy, decoding=True),
        over_greedy=True,
    ),
    PADDING,
    Quantity(
        "pad_tokens", "pad tokens", "tokens that both models computed only as padding",
        metric("padded_tokens"), "{:,}".format, better="lower",
        together=lambda row: number(row.first, "padded_tokens"),
    ),
    Quantity(
        "pad_rows", "pad rows", "cache rows that both models kept only as padding",
        metric("padded_rows"), "{:,}".format, better="lower",
        together=lambda row: number(row.first, "padded_rows"),
    ),
    Quantity(
        "at_once", "at once",
        "most requests in flight; fewer than the batch if a memory budget makes some wait",
        metric("at_once"), "{:g}".format, together=_over_repeats(metric("at_once"), max),
    ),
    Quantity(
        "peak_memory", "cache", "largest cache of a single request, of one model",
        metric("peak_cache_bytes"), megabytes, better="lower",
        together=_over_repeats(metric("peak_cache_bytes"), max),
    ),
    Quantity(
        "same", "same", "whether the output equals the first scheme's",
        _differing, lambda n: f"{n:g} differ" if n else "yes",
        together=_over_repeats(_differing, sum),
    ),
    BY_NAME["joules_per_token"],
)  # fmt: skip


MISSING = "–"  # shown if there is no figure
UNSURE = "≈"  # before a speed that something disturbed


@dataclass(frozen=True)
class Spread:
    """A figure of a row.

    Attributes:
        mean: its mean over repeats; of a single repeat that was timed several times, the estimate
        deviation: the sample standard deviation over repeats
        range: the estimate of a single repeat, with its range
    """

    mean: float
    deviation: float | None = None
    range: timing.Estimate | None = None

    @property
    def below(self) -> float:
        return self.mean - self.range.low if self.range else self.deviation or 0.0

    @property
    def above(self) -> float:
        return self.range.high - self.mean if self.range else self.deviation or 0.0


def spread(quantity: Quantity, row: Row) -> Spread | None:
    if quantity.together is not None and len(row.results) > 1:
        value = quantity.together(row)
        return None if value is None else Spread(value)
    both = [
        (r, greedy) for r, greedy in zip(row.results, row.greedy, strict=True) if r.error is None
    ]
    values = [v for r, greedy in both if (v := quantity.value(r, greedy)) is not None]
    if not values:
        return None
    if len(values) > 1:
        return Spread(statistics.fmean(values), statistics.stdev(values))
    timed = quantity.timed(*both[0]) if quantity.timed and len(both) == 1 else None
    if timed is None or timed.laps < 2:
        return Spread(values[0])
    # The figure that an earlier version estimated from these timings may lie outside of the range.
    return Spread(timed.value, None, timed)


def figure(quantity: Quantity, row: Row) -> str:
    """The figure as text, with its deviation after ± if there are repeats; "–" if there is none.

    A ≈ marks a timed figure that cannot be trusted.
    """
    value = spread(quantity, row)
    if value is None:
        return MISSING
    doubtful = quantity.timed is not None and (
        unsteady(row) or (quantity.over_greedy and greedy_disturbed(row))
    )
    text = marked(quantity.show(value.mean), not doubtful)
    deviation = quantity.show(value.deviation or 0.0)
    return text if deviation == quantity.show(0.0) else f"{text} ± {deviation}"


def greedy_disturbed(row: Row) -> bool:
    return any(timing.disturbances(greedy) for greedy in row.greedy if greedy is not None)


def marked(text: str, sure: bool) -> str:
    """The text of a figure from the clock or the meter; with ≈ if it is not sure."""
    return text if sure else f"{UNSURE}{text}"


def shown(quantity: Quantity, row: Row) -> str:
    """The figure for tables.

    Its range is in brackets if it was timed several times and the timings differ.
    """
    value = spread(quantity, row)
    text = figure(quantity, row)
    between = value and value.range
    return (
        f"{text} ({range_text(quantity, between)})"
        if between and between.low < between.high
        else text
    )


def range_text(quantity: Quantity, estimate: timing.Estimate) -> str:
    low, high = quantity.show(estimate.low), quantity.show(estimate.high)
    return low if low == high else f"{low} to {high}"


def padding_ratio(figures: BatchFigures, decoder: str, size: int) -> float | None:
    """The padding ratio of the vanilla scheme, mean over repeats; None if it was not measured.

    Source:
        Ni et al. 2024 (EMS-SD, arXiv 2405.07542), equation 10.
    """
    row = figures.row(decoder, size, "vanilla")
    ratio = row and spread(PADDING, row)
    return ratio.mean if ratio else None
