"""What a job is run with, and what it gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import decoders
from decoders import ModelPair
from workbench.measuring.baseline import Outputs
from workbench.measuring.disturbance import Watch
from workbench.measuring.meter import Meter
from workbench.runs.record import Lap, Result
from workbench.runs.trace import RoundRecord, TokenRecord
from workbench.studies.settings import Settings
from workbench.studies.study import Job

WARM_UP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Update:
    """What a job has written so far: `done` tokens in `seconds` of computing; for a trace its tokens and rounds."""

    done: int
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    provisional: bool
    seconds: float


@dataclass(frozen=True)
class Work:
    """What jobs are run with: the pair, the token ids of every prompt, the study's settings, the energy meter, the watch on the
    machine's counters, and how to stop."""

    pair: ModelPair
    ids: Sequence[list[int]]
    settings: Settings
    meter: Meter
    watch: Watch
    cancelled: Callable[[], bool]

    def options(self, job: Job, prompts: Sequence[int]) -> dict[str, Any]:
        own = {"seed": [job.seed + i for i in prompts], "cancel": self.cancelled}
        return {**self.settings.decoding, **job.batching, **own}

    def warm_up(self, job: Job) -> None:
        """Run what sets up later passes, untimed: read the prompts of a batch and decode a few tokens."""
        few = {"max_new_tokens": min(WARM_UP_TOKENS, self.settings.max_new_tokens)}
        prompts = range(min(job.batch_size, len(self.ids)))
        decoders.generate(
            self.pair, [self.ids[i] for i in prompts], job.method, **{**self.options(job, prompts), **few}
        )


@dataclass(frozen=True)
class Measured:
    """What one lap gave: a result with this lap alone, each prompt's token ids, and for each request what its rounds gained and
    drafted."""

    result: Result
    outputs: Outputs
    rounds: list[tuple[list[int], list[int]]]

    @property
    def lap(self) -> Lap:
        return self.result.laps[0]
