"""Makes a request an experiment, and runs it: hands items to workers and commits their rows.

One experiment at a time runs in the background of the page; everyone who looks sees the same state.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from decoders import InputError
from workbench.experiments import plan as plans
from workbench.experiments import workers
from workbench.experiments.cells import CellBlock, blocks, experiment_id, merged
from workbench.experiments.figures import score
from workbench.experiments.journal import (
    NEXT_TIMING,
    ExperimentProgress,
    ItemRow,
    Journal,
    failed,
    new_owner,
)
from workbench.experiments.plan import ExperimentRequest, Plan
from workbench.experiments.sets import ScoredSet
from workbench.experiments.workers import Crew, InProcess, Unit, answer
from workbench.measuring.device import Device, zero_gpu
from workbench.models.presets import EMBEDDED
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

    def unit(self, block: CellBlock, item: int) -> Unit:
        """An item of a block, as a bench runs it."""
        prompts = block.items[item]
        texts = tuple(self.sets[block.prompts].text(i) for i in prompts)
        return Unit(block.cells[0].choice, block.ids, block.cells, item, prompts, texts)


def prepare(request: ExperimentRequest, crew: Crew) -> Experiment:
    """Read the plan, load its pairs once on a worker, and spell the plan out.

    Raises:
        InputError: if the plan, its sets or its models cannot be used
    """
    plan, sets = request.read()
    facts: dict[Any, Any] = {}
    environment: dict[str, Any] = {"workers": crew.pool.says, "pairs": []}
    for choice in dict.fromkeys(choice for part in plan.parts for choice in part.pairs):
        known = answer(crew.worker(0).submit("facts", choice))
        facts[choice] = known["identity"]
        environment["pairs"].append(known["environment"])
    code = workers.code()
    spelled = blocks(plan, sets, facts, code)
    environment |= {"code": code, "sets": {name: s.revision for name, s in sets.items()}}
    return Experiment(experiment_id(spelled), request, plan, sets, spelled, environment)


def doing(block: CellBlock, item: int) -> str:
    """One line about an item that is decoded now."""
    prompts, (again, place) = block.items[item], divmod(item, NEXT_TIMING)
    timings = 1 + max(block.items) // NEXT_TIMING
    count = sum(other // NEXT_TIMING == again for other in block.items)
    what = f"{'prompt' if len(prompts) == 1 else 'batch'} {place + 1} of {count}"
    says = f"{block.part}: {block.prompts}, {what}"
    return f"{says}, timing {again + 1} of {timings}" if timings > 1 else says


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
    driver = _Driver(experiment, journal, crew, stopped or threading.Event())
    heart = threading.Thread(target=driver.beat, daemon=True)
    try:
        # The beat comes first, so that everyone who sees the experiment sees that it runs.
        journal.beat(experiment.id, driver.owner, None, "")
        journal.begin(
            experiment.id, experiment.plan.title, experiment.request.to_json(),
            dict(experiment.environment), experiment.blocks,
        )  # fmt: skip
        heart.start()
        yield from driver.progress()
    finally:
        driver.over.set()
        if heart.is_alive():
            heart.join()
        # Give all claims back. If the journal cannot be written now, they become stale.
        with contextlib.suppress(InputError):
            journal.leave(driver.owner)


class _Driver:
    def __init__(
        self, experiment: Experiment, journal: Journal, crew: Crew, stopped: threading.Event
    ):
        self.experiment, self.journal, self.crew, self.stopped = experiment, journal, crew, stopped
        self.owner, self.over = new_owner(), threading.Event()
        self.fault: InputError | None = None
        # For each future its worker's number, the block and the item.
        self.at_work: dict[Future, tuple[int, CellBlock, int]] = {}
        self.began, self.cost = time.monotonic(), 0.0
        self.open = merged(experiment.blocks)
        self.doing = ""
        self.deaths: Counter[tuple[str, int]] = Counter()

    def progress(self) -> Iterator[ExperimentProgress]:
        while True:
            if self.fault:
                raise self.fault
            stopping = self.stopped.is_set() or self.journal.asked_to_stop(self.experiment.id)
            if not stopping:
                self._fill()
            if not self.at_work:
                if stopping or not any(self.journal.left(self.open).values()):
                    break
                time.sleep(TICK_SECONDS)  # another process is at work on the rest
            else:
                done, _ = wait(self.at_work, TICK_SECONDS, FIRST_COMPLETED)
                for future in done:
                    self._finished(future)
            yield self.journal.progress(self.experiment.id)
        self.journal.leave(self.owner)
        yield self.journal.progress(self.experiment.id)

    def _fill(self) -> None:
        """Give each idle worker an item of the first block that has any left."""
        free = self.crew.free({number for number, _, _ in self.at_work.values()})
        if not free:
            return
        left = self.journal.left(self.open)
        self.open = [block for block in self.open if left[block.id]]
        for number in free:
            for block in self.open:
                item = self.journal.claim(block, self.owner)
                if item is not None:
                    self.doing, unit = doing(block, item), self.experiment.unit(block, item)
                    future = self.crew.worker(number).submit("run", unit)
                    self.at_work[future] = number, block, item
                    break
            else:
                return

    def _finished(self, future: Future) -> None:
        number, block, item = self.at_work.pop(future)
        try:
            rows = answer(future)
        except self.crew.pool.deaths as death:
            log.warning("worker %d died (%s) and is replaced", number, type(death).__name__)
            self.crew.lose(number)
            self.deaths[block.id, item] += 1
            if self.deaths[block.id, item] < MOST_DEATHS:
                # The next free worker takes it.
                self.journal.release(block, item, self.owner)
                return
            rows = _failed(block, item, f"the worker died {MOST_DEATHS} times on it")
        except Exception as failure:
            # The models could not be loaded there, or the like: a row says so, the rest goes on.
            log.exception("an item failed")
            why = f"{type(failure).__name__}: {str(failure).partition(chr(10))[0]}"
            rows = _failed(block, item, why)
        rows = [self._scored(block, row) for row in rows]
        if self.journal.commit(block, item, self.owner, rows):
            self.cost += _cost(block)

    def _scored(self, block: CellBlock, row: ItemRow) -> ItemRow:
        of, samples = self.experiment.sets[block.prompts], []
        for o in row.outputs:
            scores = None if row.result.error or o.error else score(of, o.prompt, o.text)
            item = of.items[o.prompt]
            samples.append(replace(o, scores=scores, category=item.category, id=item.id))
        return row.with_outputs(samples)

    def _eta(self) -> float | None:
        if not self.cost:
            return None
        left = self.journal.left(self.open)
        cost = sum(_cost(block) * left[block.id] for block in self.open)
        return (time.monotonic() - self.began) * cost / self.cost

    def beat(self) -> None:
        """Tell the journal that this driver is alive, in a separate thread until the work ends."""
        while not self.over.is_set():
            try:
                self.journal.beat(self.experiment.id, self.owner, self._eta(), self.doing)
            except InputError as error:
                self.fault = error
                return
            self.over.wait(BEAT_SECONDS)


def _cost(block: CellBlock) -> float:
    """The relative time that an item of the block takes."""
    return sum(len(block.items[0]) * cell.to_json()["max_new_tokens"] for cell in block.cells)


def _failed(block: CellBlock, item: int, why: str) -> list[ItemRow]:
    return [
        failed(id, item, cell.to_json(), dict.fromkeys(block.items[item]), why)
        for id, cell in zip(block.ids, block.cells, strict=True)
    ]


PUBLIC_PROMPTS = 3  # of each set, on a shared machine


@dataclass(frozen=True)
class BackgroundWork:
    """An experiment that was started here.

    Attributes:
        title: the plan's title
        starter: the visitor who may stop it on a shared machine
        stop: set to stop it after the item at work
        id: the experiment's id, None until its models are loaded
        fault: one sentence if it broke down
    """

    title: str
    starter: Hashable
    stop: threading.Event
    id: str | None = None
    fault: str = ""


class Background:
    """Starts and stops experiments on this process's device.

    Args:
        journal: the file that keeps experiments; their state is read from it
        limits: limits for visitors of a shared machine
    """

    def __init__(self, device: Device, journal: Journal, limits: Limits):
        self.device, self.journal, self.limits = device, journal, limits
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pool: InProcess | None = None
        self.work: BackgroundWork | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def waiting(self) -> bool:
        """Whether it waits for the device because something else runs there."""
        return self.running and self._pool is not None and self._pool.waiting

    def allowed(self, request: ExperimentRequest) -> ExperimentRequest:
        """The request, reduced to the limits of a shared machine.

        Raises:
            InputError: if this machine does not allow it
        """
        if zero_gpu():
            raise InputError(
                "Experiments do not run on borrowed GPUs; run this workbench on your own machine."
            )
        if not self.limits.public:
            return request
        if request.plan not in {plans.find(name).source for name in plans.shipped()}:
            raise InputError(
                "A shared machine runs only the plans that come with the project; run your own "
                "plan on your own machine."
            )
        most = min(PUBLIC_PROMPTS, request.limit or PUBLIC_PROMPTS)
        return replace(request, limit=most, choice=EMBEDDED.choice(), data=None, paths=False)

    def start(self, request: ExperimentRequest, starter: Hashable = None) -> None:
        """Start the experiment in a thread.

        Args:
            starter: the visitor, who may also stop it

        Raises:
            InputError: if the request cannot be used or is not allowed here, or if an experiment is
                running
        """
        request = self.allowed(request)
        plan, _ = request.read()
        with self._lock:
            if self.running:
                raise InputError(
                    "An experiment is running here already; stop it, or wait until it ends."
                )
            self.work = BackgroundWork(plan.title, starter, threading.Event())
            self._thread = threading.Thread(
                target=self._run, args=(request, self.work), daemon=True
            )
            self._thread.start()

    def stop(self, starter: Hashable = None) -> None:
        """Stop after the item at work.

        Raises:
            InputError: on a shared machine, if somebody else started the experiment
        """
        if self.work is None or not self.running:
            return
        if self.limits.public and starter != self.work.starter:
            raise InputError("Somebody else started this experiment; only they can stop it.")
        self.work.stop.set()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self, request: ExperimentRequest, work: BackgroundWork) -> None:
        try:
            self._pool = InProcess(self.device)
            with Crew(self._pool) as crew:
                experiment = prepare(request, crew)
                self.work = work = replace(work, id=experiment.id)
                with closing(run(experiment, self.journal, crew, work.stop)) as happening:
                    for _ in happening:
                        pass
        except InputError as error:
            self.work = replace(work, fault=str(error))
        except Exception as error:
            log.exception("an experiment broke down")
            why = f"The experiment broke down ({type(error).__name__}); the server's log says more."
            self.work = replace(work, fault=why)

    def says(self, now: ExperimentProgress | None) -> str:
        """One line about the state of the experiment."""
        work = self.work if self.running else None
        if now is None or (work is not None and work.id is None):
            return f"{work.title}: loading the models." if work is not None else ""
        words = [f"{now.title}: {now.done} of {now.total} items done"]
        if now.failed:
            words.append(f"{now.failed} rows failed")
        if now.running:
            here = work is not None and work.id == now.id
            stopping = now.stopping or (work is not None and here and work.stop.is_set())
            words.append(
                "stopping after this item"
                if stopping
                else "waiting for its turn on the device"
                if here and self.waiting
                else now.doing
            )
        elif now.done < now.total:
            words.append("stopped; press Resume to finish it")
        return " · ".join(w for w in words if w)
