"""One batch experiment: decoders, batch sizes and ways to lay a batch out, measured one after another, reported as it happens."""

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import decoders
from decoders import InputError, Method, ModelPair, catalog
from workbench.measuring.batch_cells import Sample, Times, cell, most_at_once
from workbench.measuring.session import UPDATE_SECONDS, StopClock, encode_prompt
from workbench.models.environment import environment
from workbench.show.quantities import MEGABYTE
from workbench.studies.batch import BatchSettings, Job, plan
from workbench.studies.batch_records import BASELINE, WAYS, BatchRun, batches
from workbench.studies.prompts import PromptSet

WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Progress:
    """A cell under way, at most ten times a second: job `job` of `jobs` (from 0), `tokens` of at most `budget` so far."""

    decoder: str
    batch_size: int
    way: str
    job: int
    jobs: int
    tokens: int
    budget: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A cell is measured; the run holds all so far."""

    run: BatchRun


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event. The run holds everything finished, also where it was cancelled."""

    run: BatchRun


BatchEvent = Progress | Finished | Ended


def measure(
    pair: ModelPair,
    prompts: PromptSet,
    settings: BatchSettings,
    *,
    cancel: threading.Event | Callable[[], bool] | None = None,
) -> Iterator[BatchEvent]:
    """Decode the whole set once for each cell; yields events of plain data, an `Ended` with the run last.

    A static batch is a call of `decoders.stream` of its own; dynamic batches are one call with `max_batch`. The clock stands still
    while the caller holds an event. Raises InputError at the call, before any work, for input that cannot be used, naming the
    prompt that is too long, or that the memory budget does not hold. `cancel` ends it within a forward pass and still gives the run
    so far; closing the iterator ends it without one. Either way all memory is given back.
    """
    ids = [encode_prompt(pair, prompt.text, settings.decoding.chat_template) for prompt in prompts.prompts]
    room = min((m.positions for m in pair.packed.values() if m.positions), default=None)
    for prompt, tokens in zip(prompts.prompts, ids, strict=True):
        if room is not None and len(tokens) + settings.decoding.max_new_tokens > room:
            raise InputError(
                f"{prompt.place}: its {len(tokens)} tokens and {settings.decoding.max_new_tokens} new ones exceed the {room} "
                "positions of the models; shorten it or ask for fewer tokens."
            )
    for method in settings.methods:
        decoders.stream(
            pair, ids, method, **settings.decoding.decoding
        )  # checks the input; nothing runs before it is read from
    if settings.cache_mb is not None:
        _check_budget(pair, prompts, ids, settings)
    cancelled = getattr(cancel, "is_set", cancel) or (lambda: False)
    return _Experiment(pair, prompts.name, ids, settings, cancelled).run()


def _check_budget(pair: ModelPair, prompts: PromptSet, ids: Sequence[Sequence[int]], settings: BatchSettings) -> None:
    """Raise InputError, naming the prompt that needs most, where a request alone can outgrow the memory budget."""
    new = settings.decoding.max_new_tokens
    longest = max(range(len(ids)), key=lambda i: len(ids[i]))

    needs = {m: decoders.cache_need(pair, m, len(ids[longest]), new) for m in (catalog[BASELINE](), *settings.methods)}
    method = max(needs, key=needs.__getitem__)
    if needs[method] > settings.bounded["max_cache_bytes"]:
        least = math.ceil(needs[method] / MEGABYTE * 100) / 100
        raise InputError(
            f"{prompts.prompts[longest].place}: with {method.name} its {len(ids[longest])} tokens and {new} new ones can need "
            f"{least:.2f} MB of cache, and the memory budget is {settings.cache_mb:g} MB; give at least {least:.2f}, shorten the "
            "prompt or ask for fewer tokens."
        )


@dataclass(frozen=True)
class _Experiment:
    pair: ModelPair
    name: str
    ids: list[list[int]]
    settings: BatchSettings
    cancelled: Callable[[], bool]

    def run(self) -> Iterator[BatchEvent]:
        run = BatchRun(
            datetime.now(UTC).isoformat(timespec="seconds"),
            self.settings.to_json(),
            environment(self.pair),
            self.name,
            [len(ids) for ids in self.ids],
        )
        outputs: dict[
            str, dict[int, list[int]]
        ] = {}  # by law and prompt: the tokens that all cells of this law must give
        jobs = plan(self.settings)
        for number, job in enumerate(jobs):
            if job.method.name not in run.acceptances:
                self._warm_up(job.method)
            measured = yield from self._decode(job, number, len(jobs))
            if measured is None:
                yield Ended(replace(run, cancelled=True))
                return
            samples, times = measured
            law = BASELINE if self.settings.decoding.temperature == 0 and job.method.lossless else job.method.name
            tokens = {s.prompt: s.result.tokens for s in samples if s.result.error is None}
            apart = self.settings.reads_prompts_apart(job.size, job.way)
            found = cell(job, apart, samples, times, law, tokens, outputs.setdefault(law, tokens))
            gained = {s.prompt: s.gained for s in samples}
            acceptances = {job.method.name: [gained[i] for i in range(len(self.ids))], **run.acceptances}
            run = replace(run, cells=[*run.cells, found], acceptances=acceptances)
            yield Finished(run)
        yield Ended(run)

    @property
    def _options(self) -> dict[str, Any]:
        own = {"ignore_eos": self.settings.ignore_eos, "cancel": self.cancelled}
        return {**self.settings.decoding.decoding, **self.settings.bounded, **own}

    def _warm_up(self, method: Method) -> None:
        """A process's first passes set up what later ones find ready."""
        few = min(WARM_UP_TOKENS, self.settings.decoding.max_new_tokens)
        decoders.generate(self.pair, self.ids[:2], method, **{**self._options, "max_new_tokens": few})

    def _decode(
        self, job: Job, number: int, jobs: int
    ) -> Generator[Progress, None, "tuple[list[Sample], list[Times]] | None"]:
        """Decode the whole set as one cell; None where it was cancelled."""
        way, seed = WAYS[job.way], self.settings.decoding.seed + job.repeat
        groups = batches(range(len(self.ids)), job.size)
        if not way.static:
            groups = [list(chain.from_iterable(groups))]
        budget = self.settings.decoding.max_new_tokens * sum(map(len, groups))
        samples: list[Sample] = []
        times: list[Times] = []
        due = 0.0
        for group in groups:
            samples += (batch := [Sample(i) for i in group])
            clock = StopClock()
            began, read = clock(), None
            seeds = [seed + i for i in group]
            options = {"seed": seeds, "max_batch": job.size, "padding": way.padding, "clock": clock}
            prompts = [self.ids[i] for i in group]
            with closing(decoders.stream(self.pair, prompts, job.method, **{**self._options, **options})) as stream:
                for event in stream:
                    now = clock()
                    with clock.stopped():
                        read = now if read is None else read
                        batch[event.request].add(event, now)
                        if event.result and event.result.finished == "cancelled":
                            return None
                        if time.monotonic() >= due:
                            done = sum(s.length for s in samples)
                            yield Progress(job.method.name, job.size, job.way, number, jobs, done, budget)
                            due = time.monotonic() + UPDATE_SECONDS
            now, at_once = clock(), most_at_once(s.span for s in batch)
            times.append(Times(now - began, now - read, max(len(s.gained) for s in batch), at_once))
        return samples, times
