"""The events that a session reports while it runs: plain data that can cross between processes."""

from dataclasses import dataclass

from workbench.runs.record import Result, Run
from workbench.runs.trace import RoundRecord, TokenRecord


@dataclass(frozen=True, slots=True)
class At:
    """The job and the timing that an event belongs to.

    Attributes:
        decoder: id of the job's decoder
        repeat: which repeat of the study the job is
        batch_size: requests decoded at once
        scheme: how they share a batch
        job: the job's number, from 0
        jobs: jobs in all
        lap: the timing of this job, from 0
        laps: timings of this job in all
        step: timings of all jobs that are over
        steps: timings of all jobs in all
        prompt: the number of its only prompt; None if it has several
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
    prompt: int | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A timing of a job begins."""

    at: At


@dataclass(frozen=True, slots=True)
class Progress:
    """A job under way, reported at most ten times a second.

    Attributes:
        at: the job
        done: tokens decoded
        budget: the most tokens that the job decodes
        tokens: its text so far, for jobs that keep a trace
        rounds: its rounds so far, likewise
        provisional: whether a later round may take tokens back (beams)
        eta_seconds: seconds until the whole study is over; None until that can be estimated
        seconds: seconds of computing so far in this timing
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
    """A job has been timed once more, or failed (`result.error`), or was cancelled.

    Attributes:
        at: the job
        result: its result from all timings so far
        run: the run with all results so far
    """

    at: At
    result: Result
    run: Run


@dataclass(frozen=True, slots=True)
class Ended:
    """The last event.

    Attributes:
        run: the run with everything that finished, also if it was cancelled
        unkept: why the run could not be kept; None if it could
    """

    run: Run
    unkept: str | None = None


Event = Started | Progress | Finished | Ended
