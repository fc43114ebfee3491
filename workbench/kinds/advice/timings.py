"""The timings and the findings of advice."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from decoders import Method
from workbench.experiments.figures import Interval
from workbench.runs.record import Result
from workbench.runs.timing import disturbances


@dataclass(frozen=True, slots=True)
class Timed:
    """One decoding of one prompt.

    Attributes:
        tokens: new tokens
        seconds: seconds of the whole decoding
        rounds: seconds of each round, without the first and the last
        drafting: seconds of the draft passes of each of these rounds
        gained: how many rounds there were in all
        disturbed: sentences about the machine's counters that cast doubt on the seconds
        joules: energy, None if not measured
    """

    tokens: int
    seconds: float
    rounds: list[float]
    drafting: list[float]
    gained: int
    disturbed: list[str]
    joules: float | None = None

    @staticmethod
    def of(result: Result) -> "Timed":
        """The timing in a result of one prompt.

        Its rounds are all but the first, which also reads the prompt, and the last, which drafts
        less.
        """
        metrics: dict[str, Any] = result.metrics
        lap, gained = result.laps[0], len(result.alone.gained)
        return Timed(
            metrics["new_tokens"], metrics["seconds"], lap.rounds[1:-1], lap.drafting[1:-1],
            gained, disturbances(result), result.energy.joules,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of passes and rounds, in seconds.

    Attributes:
        step: of a round of greedy decoding
        rounds: of a round of speculative decoding, by draft length
        draft: of a draft pass
    """

    step: float
    rounds: dict[int, float]
    draft: float

    @property
    def c(self) -> float:
        """Seconds of a draft pass over those of a target pass.

        Source:
            Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.8.
        """
        return self.draft / self.step

    def round(self, length: int) -> float:
        """Seconds of a round, interpolated between the draft lengths that were timed."""
        return between(self.rounds, length)


@dataclass(frozen=True, slots=True)
class Line:
    """A decoder with settings.

    Attributes:
        method: the decoder
        predicted: its predicted speed over greedy's, None if not known
        measured: its measured speed over greedy's, None if not known
        tokens: tokens per round
        joules: joules per token, None if not measured
    """

    method: Method
    predicted: Interval | None
    measured: Interval | None
    tokens: float
    joules: float | None = None

    @property
    def best(self) -> Interval:
        """The measured speed, or else the predicted one."""
        found = self.measured or self.predicted
        assert found is not None  # every line has one of them
        return found


@dataclass(frozen=True)
class Findings:
    """The findings of advice.

    Attributes:
        alpha: mean chance of acceptance
        costs: the costs of passes and rounds
        temperature: the sampling temperature
        lines: the decoders, the fastest first
        timings: number of timings
        disturbed: for each sentence about a disturbance, the number of timings that had it
    """

    alpha: float
    costs: Costs
    temperature: float
    lines: list[Line] = field(default_factory=list)
    timings: int = 0
    disturbed: Mapping[str, int] = field(default_factory=dict)


def between(rounds: Mapping[int, Any], length: int) -> Any:
    """The seconds of a round, interpolated between the draft lengths that were timed."""
    known = sorted(rounds)
    low, high = (known[0], known[1]) if length <= known[1] else (known[-2], known[-1])
    slope = (rounds[high] - rounds[low]) / (high - low)
    return rounds[low] + slope * (length - low)
