"""The sums over the requests of a job."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import accumulate
from statistics import fmean
from typing import Any

from decoders import Event, Metrics, Result
from workbench.measuring.transcript import finite
from workbench.runs.record import Energy

SUMMED = (
    "new_tokens", "target_calls", "draft_calls", "prefill_calls", "target_passes", "draft_passes",
    "drafted", "tested", "accepted", "bytes_read", "padded_tokens", "padded_rows",
)  # fmt: skip
OF_BATCHES = ("decode_seconds", "decode_tokens", "passes", "fed_tokens", "at_once")


@dataclass
class Request:
    """One prompt of a job while it is decoded.

    Attributes:
        prompt: index of the prompt
        gained: for each round, the tokens that its output gained
        drafted: for each round, the tokens that were drafted
        result: its result, once it is over
        span: when it was admitted and when it ended, in seconds
    """

    prompt: int
    gained: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    result: Result | None = None
    span: tuple[float, float] | None = None

    @property
    def length(self) -> int:
        return sum(self.gained)

    def add(self, event: Event, now: float) -> None:
        if event.result is not None:
            self.result = event.result
            self.span = now - event.result.metrics.seconds, now
        if event.round is not None:
            self.gained.append(event.keep + len(event.append) - self.length)
            self.drafted.append(event.round.drafted)


@dataclass(frozen=True, slots=True)
class Times:
    """The times of one batch.

    Attributes:
        began: when it began, in seconds
        ends: when each round of each of its requests ended
        rounds: the rounds that the batch took
        at_once: the most requests in flight
    """

    began: float
    ends: list[float]
    rounds: int
    at_once: int

    @property
    def whole(self) -> float:
        return self.ends[-1] - self.began if self.ends else 0.0

    @property
    def after_first(self) -> float:
        return self.ends[-1] - self.ends[0] if self.ends else 0.0

    @property
    def each(self) -> list[float]:
        """Seconds of each round of a request that was alone."""
        return [
            after - before
            for before, after in zip([self.began, *self.ends], self.ends, strict=False)
        ]


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """The most intervals that overlap; one that ends where another begins does not."""
    steps = sorted(step for began, ended in spans for step in ((began, 1), (ended, -1)))
    return max(accumulate((step for _, step in steps)), default=0)


def totals(
    requests: Sequence[Request], times: Sequence[Times], apart: bool, energy: Energy
) -> dict[str, Any]:
    """The metrics of a job: those of `decoders.Metrics`, and those of a batch.

    Args:
        requests: the requests
        times: the times of each batch
        apart: whether prompts are read apart from the decoding of others
        energy: energy of the job

    Returns:
        the metrics by name; all None if the decoder broke down before there were any. Those of a
            batch:
        decode_seconds: seconds without each batch's first round, which also reads the prompts; None
            unless `apart`
        decode_tokens: tokens of these seconds; None likewise
        passes: rounds that the batches took together, without their first; None likewise
        fed_tokens: tokens that the target scored in these rounds: for each request and round its
            last token and its draft (for beams, draws)
        at_once: most requests in flight: fewer than the batch size if a memory budget makes some
            wait

    Source:
        Ni et al. 2024 (EMS-SD, arXiv 2405.07542), section 4.1, for the time and the tokens of
            decoding.
    """
    metrics = [r.result.metrics for r in requests if r.result is not None]
    if not metrics:
        return dict.fromkeys([*(f.name for f in fields(Metrics)), *OF_BATCHES])
    added = replace(
        _added(metrics, sum(t.whole for t in times)),
        joules=energy.joules,
        energy_source=energy.source,
    )
    return {
        **{
            name: finite(value) if isinstance(value, float) else value
            for name, value in asdict(added).items()
        },
        "decode_seconds": sum(t.after_first for t in times) if apart else None,
        "decode_tokens": sum(sum(r.gained[1:]) for r in requests) if apart else None,
        "passes": sum(max(t.rounds - 1, 0) for t in times) if apart else None,
        "fed_tokens": sum(len(r.drafted[1:]) + sum(r.drafted[1:]) for r in requests),
        "at_once": max((t.at_once for t in times), default=0),
    }


def _added(metrics: Sequence[Metrics], seconds: float) -> Metrics:
    """The metrics of several requests, as of one that took `seconds`."""
    if len(metrics) == 1:
        return metrics[0]
    sums = {name: sum(getattr(m, name) for m in metrics) for name in SUMMED}
    nats = [m.new_tokens * math.log(m.perplexity) for m in metrics if m.perplexity]
    scored = sum(m.new_tokens for m in metrics if m.perplexity)
    ratios = [m.padding_ratio for m in metrics if m.padding_ratio is not None]
    return Metrics(
        **sums,
        seconds=seconds,
        tokens_per_second=_ratio(sums["new_tokens"], seconds),
        perplexity=math.exp(sum(nats) / scored) if scored else None,
        acceptance_rate=_ratio(sums["accepted"], sums["drafted"]),
        alpha=_ratio(sums["accepted"], sums["tested"]),
        block_efficiency=_ratio(sums["new_tokens"], sums["target_calls"]),
        peak_cache_rows=max(m.peak_cache_rows for m in metrics),
        peak_cache_bytes=max(m.peak_cache_bytes for m in metrics),
        padding_ratio=fmean(ratios) if ratios else None,
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
