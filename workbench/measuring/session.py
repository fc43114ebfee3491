"""A session runs a study: its jobs one after another, reported as they happen."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from decoders import ModelPair
from workbench.measuring.admit import admit
from workbench.measuring.baseline import References
from workbench.measuring.job import Update, Work, measure
from workbench.measuring.meter import Meter, open_meter
from workbench.models.environment import environment
from workbench.runs.events import At, Ended, Event, Finished, Progress, Started
from workbench.runs.record import Run
from workbench.runs.store import new_id
from workbench.studies.study import Job, Study


def run(
    pair: ModelPair,
    study: Study,
    *,
    meter: Meter | None = None,
    cancel: threading.Event | Callable[[], bool] | None = None,
) -> Iterator[Event]:
    """Run the jobs of a study; yields events of plain data, an `Ended` with the run last.

    Raises InputError at the call, before any work, for a study that the pair cannot run. A job that fails has its error in its result
    and the others continue. `cancel` ends it within one forward pass and still gives the run so far; closing the iterator ends it
    without one. Either way all memory is given back. Before a decoder's first job a few tokens are decoded untimed.
    """
    cancelled = getattr(cancel, "is_set", cancel) or (lambda: False)
    ids = admit(pair, study)
    work = Work(pair, ids, study.settings, meter or open_meter(pair.target.device), cancelled)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    empty = Run(new_id(), now, study.kind, study.title, study.to_json(), environment(pair), [])
    return _Session(study, work, empty, study.jobs()).events()


@dataclass
class _Session:
    study: Study
    work: Work
    run: Run
    jobs: Sequence[Job]

    def events(self) -> Iterator[Event]:
        references = References(self.study.settings.temperature, self.run.environment["dtype"])
        warm: set[str] = set()
        self.began = time.monotonic()
        for number, job in enumerate(self.jobs):
            if self.work.cancelled():
                break
            at = At(job.method.name, job.repeat, job.batch_size, job.scheme, number, len(self.jobs))
            yield Started(at)
            result, outputs = yield from self._measured(at, job, cold=job.method.name not in warm)
            warm.add(job.method.name)
            if result.cancelled and job.keep != "trace":
                break  # half a measurement is none; half a text is worth showing
            result = replace(result, agreement=references.compare(job, result, outputs))
            self.run = replace(self.run, results=[*self.run.results, result])
            yield Finished(at, result, self.run)
        stopped = len(self.run.results) < len(self.jobs) or any(r.cancelled for r in self.run.results)
        yield Ended(replace(self.run, cancelled=stopped))

    def _measured(self, at: At, job: Job, cold: bool) -> Generator[Event, None, tuple]:
        """The job's result and outputs; yields its progress."""
        budget = self.study.settings.max_new_tokens * self._requests(job)
        measuring = measure(self.work, job, cold)
        while True:
            try:
                update: Update = next(measuring)
            except StopIteration as done:
                return done.value
            eta = self._eta(at.job + min(1.0, update.done / budget))
            yield Progress(at, update.done, budget, update.tokens, update.rounds, update.provisional, eta)

    def _requests(self, job: Job) -> int:
        """Those that the job decodes: the last batch is filled up."""
        return -(-len(self.work.ids) // job.batch_size) * job.batch_size

    def _eta(self, done: float) -> float | None:
        """Seconds until all jobs are over, after so many of them."""
        return (time.monotonic() - self.began) * (len(self.jobs) - done) / done if done else None
