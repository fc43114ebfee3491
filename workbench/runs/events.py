"""What a session reports while it runs: plain data, so that it can cross from another process."""

from dataclasses import dataclass

from workbench.runs.record import Result, Run
from workbench.runs.trace import RoundRecord, TokenRecord


@dataclass(frozen=True, slots=True)
class At:
    """Which job: number `job` of `jobs` (from 0), what it decodes how, and which of its `laps` timings this is (`lap`, from 0).

    step, steps   how many timings of all jobs are over, and how many there will be
    """

    decoder: str
    repeat: int
    batch_size: int
    scheme: str
    job: int
    jobs: int
    lap: int = 0
    laps: int = 1
    step: int = 0
    steps: int = 1


@dataclass(frozen=True, slots=True)
class Started:
    """A timing of a job begins."""

    at: At


@dataclass(frozen=True, slots=True)
class Progress:
    """A job under way, at most ten times a second: `done` tokens of at most `budget`.

    tokens, rounds   of its text so far, for jobs that keep a trace;   provisional  a later round may take tokens back (beams)
    eta_seconds      until the whole study is over, None until that can be estimated;   seconds  of computing so far in this timing
    """

    at: At
    done: int
    budget: int
    tokens: list[TokenRecord]
    rounds: list[RoundRecord]
    provisional: bool
    eta_seconds: float | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A job has been timed once more, or failed (`result.error`), or was cancelled; `run` holds all results so far."""

    at: At
    result: Result
    run: Run


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event. The run holds everything finished, also if it was cancelled; `unkept` says why it could not be kept."""

    run: Run
    unkept: str | None = None


Event = Started | Progress | Finished | Ended
