"""The instruments that a job is run with, and its measurement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import decoders
from decoders import ModelPair
from workbench.measuring.baseline import Outputs
from workbench.measuring.disturbance import Watch
from workbench.measuring.meter import Meter
from workbench.runs.record import Result
from workbench.runs.timing import Lap
from workbench.runs.trace import RoundRecord, TokenRecord
from workbench.studies.settings import Settings, changed
from workbench.studies.study import Job

WARM_UP_TOKENS = 8


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

    pair: ModelPair
    ids: Sequence[list[int]]
    settings: Settings
    meter: Meter
    watch: Watch
    cancelled: Callable[[], bool]

    def options(self, job: Job, prompts: Sequence[int]) -> dict[str, Any]:
        own = {"seed": [job.seed + i for i in prompts], "cancel": self.cancelled}
        return {**self.settings.decoding, **job.batching, **own}

    def own(self, job: Job) -> dict[str, Any]:
        """The decoder's own settings, as a result keeps them; {} if they are the study's."""
        return {} if job.method in self.settings.methods else changed(job.method)

    def warm_up(self, job: Job) -> None:
        """Run a few tokens of a batch untimed, which sets up later passes."""
        few = {"max_new_tokens": min(WARM_UP_TOKENS, self.settings.max_new_tokens)}
        prompts = job.chosen(len(self.ids))[: job.batch_size]
        decoders.generate(
            self.pair,
            [self.ids[i] for i in prompts],
            job.method,
            **{**self.options(job, prompts), **few},
        )


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
