"""Makes a request an experiment, and runs it: hands items to workers and commits their rows.

One experiment at a time runs in the background of the page.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any

from decoders import InputError
from decoders.errors import first_line
from workbench.experiments.cells import CellBlock, blocks, experiment_id
from workbench.experiments.figures import score
from workbench.experiments.journal import (
    NEXT_TIMING,
    ExperimentProgress,
    Journal,
    failed,
    new_owner,
)
from workbench.experiments.plan import ExperimentRequest, Plan
from workbench.experiments.sets import ScoredSet
from workbench.experiments.workers import Crew, InProcess, Worker, answer, code
from workbench.measuring.device import Device
from workbench.runs.record import Result
from workbench.studies.study import Limits


@dataclass(frozen=True)
class Experiment:
    """A request whose models are known.

    Attributes:
        id: the experiment's id
        request: the request
        plan: its plan
        sets: the plan's sets of prompts by name
        blocks: the plan's blocks
        environment: workers, pairs, code and sets that it runs on, for reports
    """

    id: str
    request: ExperimentRequest
    plan: Plan
    sets: Mapping[str, ScoredSet]
    blocks: Sequence[CellBlock]
    environment: Mapping[str, Any]


def prepare(request: ExperimentRequest, crew: Crew) -> Experiment:
    """Read the plan, load its pairs once on a worker, and spell the plan out.

    Raises:
        InputError: if the plan, its sets or its models cannot be used
    """
    plan, sets = request.read()
    facts = {
        choice: answer(next(crew.idle(())).submit("facts", choice))
        for choice in dict.fromkeys(choice for part in plan.parts for choice in part.pairs)
    }
    identities = {choice: each["identity"] for choice, each in facts.items()}
    spelled = blocks(plan, sets, identities, code())
    environment = {
        "workers": crew.pool.says,
        "pairs": [each["environment"] for each in facts.values()],
        "code": code(),
        "sets": {name: each.revision for name, each in sets.items()},
    }
    return Experiment(experiment_id(spelled), request, plan, sets, spelled, environment)


def doing(block: CellBlock, item: int) -> str:
    what = "prompt" if len(block.items[item]) == 1 else "batch"
    again, place = divmod(item, NEXT_TIMING)
    says = f"{block.part}: {block.prompts}, {what} {place + 1}"
    return f"{says}, timing {again + 1}" if again else says


ON_YOUR_OWN = "No plan runs on a shared machine; run this workbench on your own machine."
BEAT_SECONDS = 5.0
TICK_SECONDS = 0.5
MOST_DEATHS = 3  # of workers on one item
log = logging.getLogger(__name__)


def run(
    experiment: Experiment, journal: Journal, crew: Crew, stopped: threading.Event | None = None
) -> Generator[ExperimentProgress, None, None]:
    """Run the items that are not done yet.

    Closing the iterator gives the items at work back.

    Args:
        stopped: set to end it after the items at work; `Journal.ask_to_stop` does the same

    Yields:
        the progress, for the last time when nothing is left or it was stopped

    Raises:
        InputError: if the journal cannot be written; everything committed before stays
    """
    driver = _Driver(experiment, journal, crew)
    try:
        # The beat comes first, so that everyone who sees the experiment sees that it runs.
        journal.beat(experiment.id, driver.owner, None, "")
        journal.begin(
            experiment.id, experiment.plan.title, experiment.request.to_json(),
            dict(experiment.environment), experiment.blocks,
        )  # fmt: skip
        now = journal.progress(experiment.id)
        while driver.work(now.stopping or (stopped is not None and stopped.is_set())):
            yield now
            now = journal.progress(experiment.id)
    finally:
        # Give all claims back. If the journal cannot be written now, they become stale.
        with contextlib.suppress(InputError):
            journal.leave(driver.owner)
    yield journal.progress(experiment.id)


class _Driver:
    def __init__(self, experiment: Experiment, journal: Journal, crew: Crew):
        self.experiment, self.journal, self.crew = experiment, journal, crew
        self.owner = new_owner()
        # For each future its worker, the block and the item.
        self.at_work: dict[Future, tuple[Worker, CellBlock, int]] = {}
        self.began, self.done, self.next_beat = time.monotonic(), 0, 0.0
        self.open = experiment.blocks
        self.doing = ""
        self.deaths: Counter[tuple[str, int]] = Counter()

    def work(self, stopping: bool) -> bool:
        """Hand out items unless it stops, and wait a moment; False if nothing is left to do."""
        if not stopping:
            self._fill()
        self.beat()
        if self.at_work:
            done, _ = wait(self.at_work, TICK_SECONDS, FIRST_COMPLETED)
            for future in done:
                self._finished(future)
        elif stopping or not self.journal.left(self.open):
            return False
        else:
            time.sleep(TICK_SECONDS)  # another process is at work on the rest
        return True

    def beat(self) -> None:
        """Tell the journal, if it is time, that this driver is alive."""
        if time.monotonic() >= self.next_beat:
            self.next_beat = time.monotonic() + BEAT_SECONDS
            self.journal.beat(self.experiment.id, self.owner, self._eta(), self.doing)

    def _fill(self) -> None:
        """Give each idle worker an item of the first block that has any left."""
        if len(self.at_work) >= self.crew.pool.count:
            return
        left = self.journal.left(self.open)
        self.open = [b for b in self.open if any((b.id, item) in left for item in b.items)]
        for worker in self.crew.idle([each for each, _, _ in self.at_work.values()]):
            for block in self.open:
                item = self.journal.claim(block, self.owner)
                if item is not None:
                    self.doing, prompts = doing(block, item), block.items[item]
                    of = self.experiment.sets[block.prompts]
                    texts = tuple(of.text(prompt) for prompt in prompts)
                    alone = replace(block, items={item: prompts})
                    future = worker.submit("run", alone, texts)
                    self.at_work[future] = worker, block, item
                    break
            else:
                return

    def _finished(self, future: Future) -> None:
        worker, block, item = self.at_work.pop(future)
        why = ""
        try:
            results = answer(future)
        except self.crew.pool.deaths as death:
            log.warning("a worker died (%s) and is replaced", type(death).__name__)
            self.crew.lose(worker)
            self.deaths[block.id, item] += 1
            if self.deaths[block.id, item] < MOST_DEATHS:
                # The next free worker takes it.
                self.journal.release(block, item, self.owner)
                return
            why = f"the worker died {MOST_DEATHS} times on it"
        except Exception as failure:
            # The models could not be loaded there, or the like: a row says so, the rest goes on.
            log.exception("an item failed")
            why = f"{type(failure).__name__}: {first_line(failure)}"
        if why:
            prompts = dict.fromkeys(block.items[item])
            results = [failed(cell, item, prompts, why) for cell in block.cells]
        results = [self._scored(block, each) for each in results]
        self.done += self.journal.commit(block, item, self.owner, results)

    def _scored(self, block: CellBlock, result: Result) -> Result:
        of, samples = self.experiment.sets[block.prompts], []
        for o in result.samples:
            self.beat()  # a query may take seconds
            scores = None if result.error or o.error else score(of, o.prompt, o.text)
            item = of.items[o.prompt]
            samples.append(replace(o, scores=scores, category=item.category, id=item.id))
        return replace(result, samples=samples)

    def _eta(self) -> float | None:
        if not self.done:
            return None
        each = (time.monotonic() - self.began) / self.done
        return each * len(self.journal.left(self.open))


class Background:
    """Starts and stops experiments on this process's device, one at a time.

    Args:
        journal: the file that keeps experiments; their state is read from it
        limits: nothing starts on a shared machine

    Attributes:
        title: title of the plan that was started last
        id: id of its experiment, None until its models are loaded
        fault: one sentence if it broke down
    """

    def __init__(self, device: Device, journal: Journal, limits: Limits):
        self.device, self.journal, self.limits = device, journal, limits
        self._lock, self._stop = threading.Lock(), threading.Event()
        self.thread: threading.Thread | None = None
        self.title, self.fault = "", ""
        self.id: str | None = None

    @property
    def running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def start(self, request: ExperimentRequest) -> None:
        """Start the experiment in a thread.

        Raises:
            InputError: if the request cannot be used, if an experiment is running, or on a shared
                machine
        """
        if self.limits.public:
            raise InputError(ON_YOUR_OWN)
        plan, _ = request.read()
        with self._lock:
            if self.running:
                raise InputError(
                    "An experiment is running here already; stop it, or wait until it ends."
                )
            self.title, self.fault, self.id = plan.title, "", None
            self._stop.clear()
            self.thread = threading.Thread(target=self._run, args=(request,), daemon=True)
            self.thread.start()

    def stop(self) -> None:
        """Stop after the item at work."""
        self._stop.set()
        if self.running and self.id:
            self.journal.ask_to_stop(self.id)

    def _run(self, request: ExperimentRequest) -> None:
        try:
            with Crew(InProcess(self.device)) as crew:
                experiment = prepare(request, crew)
                self.id = experiment.id
                for _ in run(experiment, self.journal, crew, self._stop):
                    pass
        except InputError as error:
            self.fault = str(error)
        except Exception as error:
            log.exception("an experiment broke down")
            why = f"The experiment broke down ({type(error).__name__}); the server's log says more."
            self.fault = why

    def says(self, now: ExperimentProgress | None) -> str:
        if self.running and (now is None or self.id is None):
            return f"{self.title}: loading the models."
        if now is None:
            return ""
        failures = f"{now.failed} rows failed" if now.failed else ""
        state = "stopped; press Resume to finish it" if now.done < now.total else ""
        if now.running:
            state = "stopping after this item" if now.stopping else now.doing
        words = (f"{now.title}: {now.done} of {now.total} items done", failures, state)
        return " · ".join(filter(None, words))
