"""One batch experiment: decoders, batch sizes and ways to lay a batch out, measured one after another, reported as it happens."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from statistics import fmean
from typing import Any

import decoders
from decoders import Event, InputError, Method, ModelPair, Result
from workbench.batch_records import BASELINE, WAYS, BatchRun, Cell, batches
from workbench.batch_settings import BatchSettings, Job, plan
from workbench.environment import environment
from workbench.prompts import PromptSet
from workbench.session import UPDATE_SECONDS, StopClock, encode_prompt

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
    prompt that is too long. `cancel` ends it within a forward pass and still gives the run so far; closing the iterator ends it
    without one. Either way all memory is given back.
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
    cancelled = getattr(cancel, "is_set", cancel) or (lambda: False)
    return _Experiment(pair, prompts.name, ids, settings, cancelled).run()


@dataclass
class _Sample:
    """One request of a cell: the prompt's index, and for each round the tokens that the output gained and those that were drafted."""

    prompt: int
    gained: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    result: Result | None = None

    @property
    def length(self) -> int:
        return sum(self.gained)

    def add(self, event: Event) -> None:
        self.result = event.result
        if event.round is not None:
            self.gained.append(event.keep + len(event.append) - self.length)
            self.drafted.append(event.round.drafted)


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
            cell = _cell(job, samples, times, law, tokens, outputs.setdefault(law, tokens))
            gained = {s.prompt: s.gained for s in samples}
            acceptances = {job.method.name: [gained[i] for i in range(len(self.ids))], **run.acceptances}
            run = replace(run, cells=[*run.cells, cell], acceptances=acceptances)
            yield Finished(run)
        yield Ended(run)

    @property
    def _options(self) -> dict[str, Any]:
        return {**self.settings.decoding.decoding, "ignore_eos": self.settings.ignore_eos, "cancel": self.cancelled}

    def _warm_up(self, method: Method) -> None:
        """A process's first passes set up what later ones find ready."""
        few = min(WARM_UP_TOKENS, self.settings.decoding.max_new_tokens)
        decoders.generate(self.pair, self.ids[:2], method, **{**self._options, "max_new_tokens": few})

    def _decode(
        self, job: Job, number: int, jobs: int
    ) -> Generator[Progress, None, "tuple[list[_Sample], list[_Times]] | None"]:
        """Decode the whole set as one cell; None where it was cancelled."""
        way, seed = WAYS[job.way], self.settings.decoding.seed + job.repeat
        groups = batches(range(len(self.ids)), job.size)
        if not way.static:
            groups = [list(chain.from_iterable(groups))]
        budget = self.settings.decoding.max_new_tokens * sum(map(len, groups))
        samples: list[_Sample] = []
        times: list[_Times] = []
        due = 0.0
        for group in groups:
            samples += (batch := [_Sample(i) for i in group])
            clock = StopClock()
            began, read = clock(), None
            options = {"seed": [seed + i for i in group], "max_batch": job.size, "padding": way.padding}
            prompts = [self.ids[i] for i in group]
            with closing(decoders.stream(self.pair, prompts, job.method, **{**self._options, **options})) as stream:
                for event in stream:
                    with clock.stopped():
                        read = clock() if read is None else read
                        batch[event.request].add(event)
                        if event.result and event.result.finished == "cancelled":
                            return None
                        if time.monotonic() >= due:
                            done = sum(s.length for s in samples)
                            yield Progress(job.method.name, job.size, job.way, number, jobs, done, budget)
                            due = time.monotonic() + UPDATE_SECONDS
            times.append(_Times(clock() - began, clock() - read, max(len(s.gained) for s in batch)))
        return samples, times


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds of one batch, those behind its first round, and its rounds."""

    whole: float
    behind_first: float
    rounds: int


def _cell(
    job: Job,
    samples: Sequence[_Sample],
    times: Sequence[_Times],
    law: str,
    tokens: dict[int, list[int]],
    expected: dict[int, list[int]],
) -> Cell:
    static = WAYS[job.way].static
    metrics = [s.result.metrics for s in samples]
    ratios = [m.padding_ratio for m in metrics if m.padding_ratio is not None]
    return Cell(
        decoder=job.method.name,
        batch_size=job.size,
        way=job.way,
        repeat=job.repeat,
        seconds=sum(t.whole for t in times),
        new_tokens=sum(s.length for s in samples),
        decode_seconds=sum(t.behind_first for t in times) if static else None,
        decode_tokens=sum(sum(s.gained[1:]) for s in samples) if static else None,
        passes=sum(t.rounds - 1 for t in times) if static else None,
        fed_tokens=sum(len(s.drafted[1:]) + sum(s.drafted[1:]) for s in samples),
        padded_tokens=sum(m.padded_tokens for m in metrics),
        padded_rows=sum(m.padded_rows for m in metrics),
        padding_ratio=fmean(ratios) if ratios else None,
        differing=sum(tokens[i] != expected[i] for i in tokens.keys() & expected.keys()),
        reference=law,
        errors=[str(s.result.error) for s in samples if s.result.error],
    )
