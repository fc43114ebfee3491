"""The events that a session reports while it runs: plain data that can cross between processes."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace

from workbench.runs.figures import label
from workbench.runs.record import PromptPart, Result, RoundRecord, Run, TokenRecord
from workbench.studies.study import scheme_label


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
        lap: the timing of this job, from 0: all jobs run once before one is timed again
        laps: timings of this job in all, as far as that is known
    """

    decoder: str
    repeat: int
    batch_size: int
    scheme: str
    job: int
    jobs: int
    lap: int = 0
    laps: int = 1

    @property
    def last_text(self) -> bool:
        """Whether all jobs have run once when this one is done; what follows is timing alone."""
        return self.lap == 0 and self.job + 1 == self.jobs

    @property
    def words(self) -> str:
        """The job's number among those that run once, its timing after that, and its batch."""
        words = [f"{label(self.decoder)} ({self.job + 1} of {self.jobs})"]
        if self.repeat:
            words.append(f"repeat {self.repeat + 1}")
        if self.lap:
            words.append(f"timing {self.lap + 1} of {self.laps}")
        if self.batch_size > 1:
            scheme = scheme_label(self.decoder, self.batch_size, self.scheme)
            words.append(f"batch size {self.batch_size}: {scheme}")
        return " · ".join(words)


@dataclass(frozen=True, slots=True)
class Started:
    """A timing of a job begins.

    Attributes:
        at: the job
        eta_seconds: see `Progress`
        parts: of the job's first prompt, what a chat template wrote and what not, see `Sample`
    """

    at: At
    eta_seconds: float | None = None
    parts: list[PromptPart] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Progress:
    """A job under way, reported a few times a second at most.

    Attributes:
        at: the job
        done: tokens decoded
        budget: the most tokens that the job decodes
        tokens: its text so far, for jobs that keep a trace
        rounds: its rounds so far, likewise
        provisional: whether a later round may take tokens back (beams)
        eta_seconds: seconds until all jobs have run once; None until that can be estimated, and
            while jobs are timed again
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
        unkept: why the run so far could not be kept, as of `Ended`
    """

    at: At
    result: Result
    run: Run
    unkept: str | None = None


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


def onto(earlier: Run | None, events: Generator[Event, None, None]) -> Generator[Event, None, None]:
    """The events of a study; if it adds to an earlier run, their runs hold the draws of both.

    A study that was stopped before it had any adds nothing: the last event has its own, empty run,
    so that the earlier one, which may be complete, is neither kept again nor called stopped.
    """
    with closing(events):
        for event in events:
            if earlier and isinstance(event, (Finished, Ended)) and event.run.results:
                event = replace(event, run=pooled(earlier, event.run))
            yield event


def pooled(earlier: Run, more: Run) -> Run:
    """The earlier run with the results of another added: one more set of seeds for each decoder.

    Of the two laws it keeps the earlier one, so that all draws are counted in the same cells,
    unless an older version kept fewer prefixes. It keeps all prefixes that either law rules out.
    """
    repeat = 1 + max(result.repeat for result in earlier.results)
    results = [*earlier.results, *(replace(result, repeat=repeat) for result in more.results)]
    likely = max(([x for x in run.exact if x.p] for run in (earlier, more)), key=len)
    never = {tuple(x.tokens): x for run in (earlier, more) for x in run.exact if not x.p}
    exact = [*likely, *never.values()]
    return replace(earlier, results=results, exact=exact, cancelled=more.cancelled)
