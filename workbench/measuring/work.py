"""The instruments that a job is run with, and its measurement."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import decoders
from workbench.measuring.disturbance import Watch
from workbench.measuring.meter import Meter
from workbench.runs.record import Result
from workbench.runs.trace import Lap, RoundRecord, TokenRecord
from workbench.studies.settings import Settings, changed
from workbench.studies.study import Job

Outputs = Mapping[int, Sequence[int]]  # prompt -> its token ids
WARM_UP_TOKENS = 8


class StopClock:
    """Seconds that do not pass while it is stopped.

    Args:
        now: the clock behind it
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter):
        self._now, self._away = now, 0.0

    def __call__(self) -> float:
        return self._now() - self._away

    @contextmanager
    def stopped(self) -> Iterator[None]:
        began = self._now()
        try:
            yield
        finally:
            self._away += self._now() - began


@contextmanager
def light_heap() -> Iterator[None]:
    """Let Python's collector look only at objects made in here.

    Walking all objects of the process takes as long as some laps. Nothing is collected before,
    which would take as long: garbage is frozen with the rest, and collected afterwards.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@dataclass(frozen=True, slots=True)
class Update:
    """The state of a job under way.

    Attributes:
        done: tokens written
        tokens: its text so far, for jobs that keep a trace
        rounds: its rounds so far, likewise
        provisional: whether a later round may take tokens back
        seconds: seconds of computing so far
    """

    done: int
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    provisional: bool
    seconds: float


@dataclass(frozen=True)
class Work:
    """The instruments that jobs are run with.

    Attributes:
        pair: the pair
        ids: the token ids of every prompt
        settings: the study's
        meter: measures energy
        watch: reads the machine's counters
        cancelled: whether to stop
    """

    pair: decoders.ModelPair
    ids: Sequence[list[int]]
    settings: Settings
    meter: Meter
    watch: Watch
    cancelled: Callable[[], bool]

    def options(self, job: Job, prompts: Sequence[int]) -> dict[str, Any]:
        return {
            **self.settings.decoding,
            **job.batching,
            "seed": [job.seed + i for i in prompts],
            "cancel": self.cancelled,
        }

    def own(self, job: Job) -> dict[str, Any]:
        """The decoder's own settings, as a result keeps them; {} if they are the study's."""
        return {} if job.method in self.settings.methods else changed(job.method)

    def warm_up(self, job: Job) -> None:
        """Run a few tokens of a batch untimed, which sets up later passes."""
        prompts = job.chosen(len(self.ids))[: job.batch_size]
        options = self.options(job, prompts)
        options["max_new_tokens"] = min(WARM_UP_TOKENS, self.settings.max_new_tokens)
        decoders.generate(self.pair, [self.ids[i] for i in prompts], job.method, **options)


@dataclass(frozen=True)
class Measured:
    """The measurement of one lap.

    Attributes:
        result: a result with this lap alone
        outputs: each prompt's token ids
        rounds: for each request, the tokens that its rounds gained and drafted
    """

    result: Result
    outputs: Outputs
    rounds: list[tuple[list[int], list[int]]]

    @property
    def lap(self) -> Lap:
        return self.result.laps[0]
