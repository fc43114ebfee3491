"""One job on the clock, and the sums over its requests: the only caller of `decoders.stream`."""

import logging
import math
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import accumulate, chain
from statistics import fmean
from typing import Any

import torch

import decoders
from decoders import Event, Metrics
from workbench.measuring.meter import Window
from workbench.measuring.transcript import Pieces, Texts, Transcript, finite
from workbench.measuring.work import Measured, StopClock, Update, Work, parts_of
from workbench.runs.record import Energy, Lap, Load, Result, RoundRecord, Sample, TokenRecord
from workbench.studies.study import SCHEMES, Job, batches

SUMMED = (
    "new_tokens", "target_calls", "draft_calls", "prefill_calls", "target_passes", "draft_passes",
    "drafted", "tested", "accepted", "bytes_read", "padded_tokens", "padded_rows",
)  # fmt: skip
OF_BATCHES = ("decode_seconds", "decode_tokens", "passes", "fed_tokens", "at_once")


@dataclass
class PromptState:
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
    result: decoders.Result | None = None
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
        each: seconds of each round of each of its requests, as they ended one after another
        rounds: the rounds that the batch took
        at_once: the most requests in flight
    """

    each: list[float]
    rounds: int
    at_once: int


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """The most intervals that overlap; one that ends where another begins does not."""
    steps = sorted(step for began, ended in spans for step in ((began, 1), (ended, -1)))
    return max(accumulate((step for _, step in steps)), default=0)


def totals(
    requests: Sequence[PromptState], times: Sequence[Times], apart: bool, energy: Energy
) -> dict[str, Any]:
    """The metrics of a job: those of `decoders.Metrics`, and those of a batch.

    Args:
        apart: whether prompts are read apart from the decoding of others

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
        return untold()
    added = replace(
        _added(metrics, sum(sum(t.each) for t in times)),
        joules=energy.joules,
        energy_source=energy.source,
    )
    return {
        **{
            name: finite(value) if isinstance(value, float) else value
            for name, value in asdict(added).items()
        },
        "decode_seconds": sum(sum(t.each[1:]) for t in times) if apart else None,
        "decode_tokens": sum(sum(r.gained[1:]) for r in requests) if apart else None,
        "passes": sum(max(t.rounds - 1, 0) for t in times) if apart else None,
        "fed_tokens": sum(len(r.drafted[1:]) + sum(r.drafted[1:]) for r in requests),
        "at_once": max((t.at_once for t in times), default=0),
    }


def untold() -> dict[str, Any]:
    return dict.fromkeys([*(f.name for f in fields(Metrics)), *OF_BATCHES])


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


# The least seconds between two updates: one update per token in five panels more than doubled the
# wall time.
UPDATE_SECONDS = 0.4
OUT_OF_MEMORY = (
    "The device ran out of memory; take fewer beams, fewer tokens, a shorter prompt or a smaller "
    "pair."
)
log = logging.getLogger(__name__)


def measure(
    work: Work, job: Job, *, cold: bool = False, shows: bool = True
) -> Generator[Update, None, Measured]:
    """Decode all prompts as the job says, once, on the clock.

    A static batch is one call of `decoders.stream`; dynamic batches are one call together. The
    clock stands still while the caller holds an update: speeds are those of the models and the
    decoder alone, however slowly the caller draws. A failure, also for lack of memory, becomes the
    result's error and ends only this job.

    Args:
        work: the pair, the prompts and the instruments
        cold: whether this decoder has not run before; it is then warmed up first
        shows: whether to yield updates on the way
    """
    lap = _Running(work, job, shows)
    window, error = Window(), None
    try:
        if cold:
            work.warm_up(job)
        before, lap.began, computed = work.watch.read(), lap.clock(), lap.computed()
        with work.meter.window() as window:
            for group in lap.groups:
                yield from lap.batch(group)
                if work.cancelled():
                    break
        ran = lap.clock() - lap.began, lap.computed() - computed
        lap.load = work.watch.load(before, work.watch.read(), *ran)
    except Exception as failure:
        log.exception("%s failed", job.method.name)
        error = sentence(failure)
    return lap.measured(window, error)


def sentence(failure: Exception) -> str:
    line = f"{type(failure).__name__}: {str(failure).strip().partition(chr(10))[0]}"
    return OUT_OF_MEMORY if isinstance(failure, torch.OutOfMemoryError) else line


class _Running:
    def __init__(self, work: Work, job: Job, shows: bool):
        self.work, self.job = work, job
        groups = batches(range(len(work.ids)), job.batch_size)
        # The prompts of each call: those of a static batch, or all.
        self.groups = groups if SCHEMES[job.scheme].static else [[*chain.from_iterable(groups)]]
        self.requests: list[PromptState] = []
        self.times: list[Times] = []
        self.passes: list[decoders.Round] = []
        self.transcript: Transcript | None = None
        if job.keep == "trace":
            self.transcript = Transcript(Pieces(work.pair.tokenizer), root=len(work.ids[0]) - 1)
        self.texts = Texts(Pieces(work.pair.tokenizer), job.method)
        # The clocks of the wall and of this thread.
        self.clock, self.computed = StopClock(), StopClock(time.thread_time)
        self.load, self.began = Load(), 0.0
        self.due = time.monotonic() + UPDATE_SECONDS if shows else math.inf
        self.updated = False

    def batch(self, group: Sequence[int]) -> Iterator[Update]:
        batch = [PromptState(i) for i in group]
        self.requests += batch
        each: list[float] = []
        prompts, options = [self.work.ids[i] for i in group], self.work.options(self.job, group)
        stream = decoders.stream(
            self.work.pair, prompts, self.job.method, **options, clock=self.clock
        )
        before = self.clock()
        try:
            with closing(stream):
                for event in stream:
                    now = self.clock()
                    with self.clock.stopped(), self.computed.stopped():
                        batch[event.request].add(event, now)
                        if event.round is not None:
                            each.append(now - before)
                            before = now
                            self.passes.append(event.round)
                            yield from self._update(event.provisional, now - self.began)
        finally:
            at_once = most_at_once(r.span for r in batch if r.span is not None)
            self.times.append(Times(each, max(len(r.gained) for r in batch), at_once))

    def _update(self, provisional: bool, seconds: float) -> Iterator[Update]:
        if time.monotonic() < self.due:
            return
        tokens, rounds = self._written()
        self.updated = True
        yield Update(sum(r.length for r in self.requests), tokens, rounds, provisional, seconds)
        self.due = time.monotonic() + UPDATE_SECONDS

    def _written(self) -> tuple[list[TokenRecord], list[RoundRecord]]:
        """The transcript so far.

        It is written when somebody looks at it: written after each round, it took the models out of
        the caches.
        """
        if self.transcript is None:
            return [], []
        for entry in self.passes[len(self.transcript.rounds) :]:
            self.transcript.add(entry)
        return list(self.transcript.tokens), list(self.transcript.rounds)

    def measured(self, window: Window, error: str | None) -> Measured:
        job = self.job
        metrics = totals(self.requests, self.times, job.reads_prompts_apart, window.energy)
        # The last batch is filled up with prompts from the start.
        once = {r.prompt: r for r in reversed(self.requests)}
        nothing = Sample(0, len(self.work.ids[0]))
        samples = [self._sample(once[i]) for i in sorted(once)] or [nothing]
        if error is None and len(samples) == 1:
            error = samples[0].error
        result = Result(
            job.method.name, job.repeat, job.seed, metrics, window.energy, samples,
            [] if metrics["seconds"] is None else [self._lap(metrics, window)],
            job.batch_size, job.scheme, error=error,
        )  # fmt: skip
        outputs = {
            r.prompt: r.result.tokens
            for r in self.requests
            if r.result is not None and r.result.error is None
        }
        return Measured(result, outputs, [(r.gained, r.drafted) for r in self.requests])

    def _lap(self, metrics: dict[str, Any], window: Window) -> Lap:
        alone = len(self.requests) == 1 and len(self.times) == 1
        return Lap(
            metrics["seconds"],
            self.times[0].each if alone else [],
            window.energy,
            metrics.get("decode_seconds"),
            [r.draft_seconds for r in self.passes] if alone else [],
            [r.verify_seconds for r in self.passes] if alone else [],
            drawn=self.updated,
            load=self.load,
        )

    def _sample(self, request: PromptState) -> Sample:
        result, sample = request.result, Sample(request.prompt, len(self.work.ids[request.prompt]))
        if result is not None:
            sample = replace(
                sample, finished=result.finished, error=str(result.error) if result.error else None
            )
        if self.job.keep == "figures":
            return sample
        if self.job.keep == "text":
            return self.texts.of(sample, result) if result else sample
        sample = replace(
            sample, gained=[max(0, g) for g in request.gained], drafted=list(request.drafted)
        )
        if self.transcript is None:
            return sample
        text, ids = result.text if result else "", list(self.work.ids[request.prompt])
        self._written()
        self.transcript.finish(text)
        tokens, rounds = self.transcript.tokens, self.transcript.rounds
        parts = parts_of(self.work, request.prompt)
        return replace(
            sample, text=text, tokens=tokens, rounds=rounds, prompt_ids=ids, prompt_parts=parts
        )
