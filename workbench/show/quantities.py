"""The figures of a decoder as readers see them: label, formula, value, and the counts it was made from. One table for panel, page and report."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workbench.runs.store import RunResult

MEGABYTE = 1e6


@dataclass(frozen=True)
class Number:
    """One figure.

    help    what it counts, as a formula;   value  of one result, None where it has none
    show    a value as text;   counts  what it was made from, as text
    better  "higher" or "lower" where one is better
    """

    name: str
    label: str
    help: str
    value: Callable[[RunResult], float | None]
    show: Callable[[float], str]
    counts: Callable[[RunResult], str] = lambda result: ""
    better: str | None = None


def metric(name: str) -> Callable[[RunResult], float | None]:
    return lambda result: result.metrics.get(name)


def bytes_per_token(result: RunResult) -> float | None:
    tokens = result.metrics["new_tokens"]
    return result.metrics["bytes_read"] / tokens if tokens else None


def joules_per_token(result: RunResult) -> float | None:
    tokens = result.metrics["new_tokens"]
    return result.energy.joules / tokens if result.energy.joules is not None and tokens else None


def of(part: str, whole: str, parts: str, wholes: str) -> Callable[[RunResult], str]:
    """ "55 accepted of 77 drafted": two counts of the metrics in words."""
    return lambda r: f"{r.metrics[part]} {parts} {r.metrics[whole]} {wholes}"


def significant(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def megabytes(value: float) -> str:
    return f"{significant(value / MEGABYTE)} MB"


NUMBERS = (
    Number(
        "speed", "tokens/s", "new tokens / seconds of the models' work, drawing excluded",
        metric("tokens_per_second"), significant,
        lambda r: f"{r.metrics['new_tokens']} tokens in {r.metrics['seconds']:.2f} s", "higher",
    ),
    Number(
        "x_greedy", "× greedy", "tokens/s over those of greedy in the same run, with the same seed",
        lambda r: r.x_greedy, lambda v: f"{v:.2f}×", better="higher",
    ),
    Number(
        "perplexity", "perplexity", "exp(−mean log p) of the new tokens under the plain target: lower is likelier text",
        metric("perplexity"), lambda v: f"{v:.2f}", lambda r: f"over {r.metrics['new_tokens']} tokens", "lower",
    ),
    Number(
        "joules_per_token", "J/token", "measured energy / new tokens",
        joules_per_token, significant, lambda r: r.energy.source, "lower",
    ),
    Number(
        "memory_per_token", "memory traffic/token", "bytes of weights and cache read by all passes / new tokens, counted exactly",
        bytes_per_token, megabytes, lambda r: f"{megabytes(r.metrics['bytes_read'])} read", "lower",
    ),
    Number(
        "block_efficiency", "block efficiency", "new tokens / target passes: what one pass of the large model yields",
        metric("block_efficiency"), lambda v: f"{v:.2f}", of("new_tokens", "target_calls", "tokens /", "target passes"), "higher",
    ),
    Number(
        "acceptance", "acceptance", "draft tokens kept / draft tokens sent to the target",
        metric("acceptance_rate"), lambda v: f"{v:.0%}", of("accepted", "drafted", "of", "drafted"), "higher",
    ),
    Number(
        "peak_memory", "peak cache", "most bytes of one model's key-value cache in use at once",
        metric("peak_cache_bytes"), megabytes, lambda r: f"{r.metrics['peak_cache_rows']} rows", "lower",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of a figure over repeats; `deviation` is None for a single one."""

    mean: float
    deviation: float | None


def spread(number: Number, results: Sequence[RunResult]) -> Spread | None:
    """Over the repeats of one decoder; None where no repeat has the figure."""
    values = [v for r in results if r.error is None and (v := number.value(r)) is not None]
    if not values:
        return None
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def shown(number: Number, results: Sequence[RunResult]) -> str:
    """The figure as text: the mean, and the deviation after ± where there are repeats; "–" where there is none."""
    found = spread(number, results)
    if found is None:
        return "–"
    text = number.show(found.mean)
    return text if found.deviation is None else f"{text} ± {number.show(found.deviation)}"


def by_decoder(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """The results of each decoder, in the order the decoders ran first."""
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.decoder, []).append(result)
    return groups


def table(results: Sequence[RunResult]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: a row for each decoder, a column for each figure."""
    rows = [[name, *(shown(n, group) for n in NUMBERS)] for name, group in by_decoder(results).items()]
    return ["decoder", *(n.label for n in NUMBERS)], rows


def side_by_side(a: Sequence[RunResult], b: Sequence[RunResult]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of two runs' figures next to each other: a row for each decoder and figure that either of them has."""
    groups = by_decoder(a), by_decoder(b)
    rows = [
        [name, n.label, *(shown(n, group.get(name, ())) for group in groups)]
        for name in dict.fromkeys([*groups[0], *groups[1]])
        for n in NUMBERS
    ]
    return ["decoder", "figure", "A", "B"], [row for row in rows if row[2:] != ["–", "–"]]
