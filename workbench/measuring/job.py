"""One job on the clock: the only caller of `decoders.stream`."""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

import decoders
from decoders import ModelPair
from workbench.measuring.baseline import Outputs
from workbench.measuring.clock import StopClock
from workbench.measuring.detokenise import Pieces
from workbench.measuring.meter import Meter, Window
from workbench.measuring.totals import Request, Times, most_at_once, totals
from workbench.measuring.transcript import Transcript
from workbench.runs.record import Lap, Result, RoundRecord, Sample, TokenRecord
from workbench.studies.schemes import SCHEMES, batches
from workbench.studies.settings import Settings
from workbench.studies.study import Job

UPDATE_SECONDS = 0.1  # between two updates at least: per-token updates of five panels more than doubled the wall time
DRAWING_SHARE = 0.2  # of the waiting time at most is spent drawing; a slow screen gets fewer updates
WARM_UP_TOKENS = 8
OUT_OF_MEMORY = "The device ran out of memory; take fewer beams, fewer tokens, a shorter prompt or a smaller pair."
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Update:
    """What a job has written so far: `done` tokens; for a trace its tokens and rounds."""

    done: int
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    provisional: bool


@dataclass(frozen=True)
class Work:
    """What a job is run with: the pair, the token ids of every prompt, the study's settings, the meter, and how to stop."""

    pair: ModelPair
    ids: Sequence[list[int]]
    settings: Settings
    meter: Meter
    cancelled: Callable[[], bool]

    def options(self, job: Job, prompts: Sequence[int]) -> dict[str, Any]:
        own = {"seed": [job.seed + i for i in prompts], "cancel": self.cancelled}
        return {**self.settings.decoding, **job.batching, **own}

    def warm_up(self, job: Job) -> None:
        """A process's first passes set up what later ones find ready: decode a few tokens untimed."""
        few = {"max_new_tokens": min(WARM_UP_TOKENS, self.settings.max_new_tokens), "max_cache_bytes": None}
        prompts = range(min(2, len(self.ids)))
        ids = [self.ids[i][-WARM_UP_TOKENS:] for i in prompts]
        decoders.generate(self.pair, ids, job.method, **{**self.options(job, prompts), **few})


def measure(work: Work, job: Job, cold: bool = False) -> Generator[Update, None, tuple[Result, Outputs]]:
    """Decode all prompts as the job says, once, on the clock; gives the result with one lap, and each prompt's token ids.

    cold   whether this decoder has not run before: then a few tokens are decoded untimed first

    A static batch is a call of `decoders.stream` of its own; dynamic batches are one call. The clock stands still while the caller
    holds an update: speeds are those of the models and the decoder alone, however slowly the caller draws. What goes wrong, memory
    that runs out included, becomes the result's error and ends this job alone.
    """
    lap = _Lap(work, job)
    window, error = Window(), None
    try:
        if cold:
            work.warm_up(job)
        with work.meter.window() as window:
            yield from lap.run()
    except torch.OutOfMemoryError:
        error = OUT_OF_MEMORY
    except Exception as failure:
        log.exception("%s failed", job.method.name)
        error = f"{type(failure).__name__}: {str(failure).strip().partition(chr(10))[0]}"
    return lap.result(window, error)


class _Lap:
    """One pass over the prompts while it runs."""

    def __init__(self, work: Work, job: Job):
        self.work, self.job = work, job
        self.requests: list[Request] = []
        self.times: list[Times] = []
        self.transcript: Transcript | None = None
        if job.keep == "trace":
            self.transcript = Transcript(Pieces(work.pair.tokenizer), len(work.ids[0]) - 1)
        self.clock, self.due = StopClock(), time.monotonic() + UPDATE_SECONDS

    def run(self) -> Iterator[Update]:
        groups = batches(range(len(self.work.ids)), self.job.batch_size)
        if not SCHEMES[self.job.scheme].static:
            groups = [list(chain.from_iterable(groups))]
        for group in groups:
            yield from self._batch(group)
            if self.work.cancelled():
                return

    def _batch(self, group: Sequence[int]) -> Iterator[Update]:
        """Decode one batch to its end."""
        batch = [Request(i) for i in group]
        self.requests += batch
        ends: list[float] = []
        prompts, options = [self.work.ids[i] for i in group], self.work.options(self.job, group)
        with closing(decoders.stream(self.work.pair, prompts, self.job.method, **options, clock=self.clock)) as stream:
            began = self.clock()
            try:
                for event in stream:
                    now = self.clock()
                    with self.clock.stopped():
                        batch[event.request].add(event, now)
                        if event.round is not None:
                            ends.append(now)
                            if self.transcript is not None:
                                self.transcript.add(event.round)
                            yield from self._update(event.provisional)
            finally:
                spans = [r.span for r in batch if r.span is not None]
                self.times.append(Times(began, ends, max(len(r.gained) for r in batch), most_at_once(spans)))

    def _update(self, provisional: bool) -> Iterator[Update]:
        """At most ten times a second, and less often for a slow caller."""
        if time.monotonic() < self.due:
            return
        drawing = time.monotonic()
        kept = self.transcript
        tokens, rounds = (list(kept.tokens), list(kept.rounds)) if kept else ([], [])
        yield Update(sum(r.length for r in self.requests), tokens, rounds, provisional)
        drawn = time.monotonic() - drawing
        self.due = time.monotonic() + max(UPDATE_SECONDS, drawn * (1 / DRAWING_SHARE - 1))

    def result(self, window: Window, error: str | None) -> tuple[Result, Outputs]:
        job, energy = self.job, window.energy
        metrics = totals(self.requests, self.times, job.reads_prompts_apart, energy)
        rounds = self.times[0].each if len(self.requests) == 1 and self.times else []
        laps = [] if metrics["seconds"] is None else [Lap(metrics["seconds"], rounds, energy)]
        once = {r.prompt: r for r in reversed(self.requests)}  # the last batch is filled up from the start
        samples = [self._sample(once[i]) for i in sorted(once)] or [Sample(0, len(self.work.ids[0]))]
        if error is None and len(samples) == 1:
            error = samples[0].error
        result = Result(
            job.method.name,
            job.repeat,
            job.seed,
            metrics,
            energy,
            samples,
            laps,
            job.batch_size,
            job.scheme,
            error=error,
        )
        done = [r for r in self.requests if r.result is not None and r.result.error is None]
        return result, {r.prompt: r.result.tokens for r in done}

    def _sample(self, request: Request) -> Sample:
        found, sample = request.result, Sample(request.prompt, len(self.work.ids[request.prompt]))
        if found is not None:
            error = str(found.error) if found.error else None
            sample = replace(sample, finished=found.finished, error=error)
        if self.job.keep == "figures":
            return sample
        sample = replace(sample, gained=[max(0, g) for g in request.gained])
        if self.transcript is None:
            return sample
        text = found.text if found else ""
        self.transcript.finish(text)
        return replace(sample, text=text, tokens=self.transcript.tokens, rounds=self.transcript.rounds)
