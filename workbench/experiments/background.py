"""One experiment at a time in the background of this process.

Everyone who looks sees the same state.
"""

import logging
import threading
from collections.abc import Hashable
from contextlib import closing
from dataclasses import dataclass, replace

from decoders import InputError
from workbench.experiments import driver
from workbench.experiments import plan as plans
from workbench.experiments.journal import Journal, Progress
from workbench.experiments.request import Request
from workbench.experiments.workers import Crew, InProcess
from workbench.measuring.device import Device, zero_gpu
from workbench.models.presets import EMBEDDED
from workbench.studies.limits import Limits

PUBLIC_PROMPTS = 3  # of each set, on a shared machine
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Work:
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
        device: the device that decodes
        journal: the file that keeps experiments; their state is read from it
        limits: limits for visitors of a shared machine
    """

    def __init__(self, device: Device, journal: Journal, limits: Limits):
        self.device, self.journal, self.limits = device, journal, limits
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._pool: InProcess | None = None
        self.work: Work | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def waiting(self) -> bool:
        """Whether it waits for the device because something else runs there."""
        return self.running and self._pool is not None and self._pool.waiting

    def allowed(self, request: Request) -> Request:
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

    def start(self, request: Request, starter: Hashable = None) -> None:
        """Start the experiment in a thread.

        Args:
            request: the experiment to run
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
            self.work = Work(plan.title, starter, threading.Event())
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
        """Wait until the experiment ends."""
        if self._thread is not None:
            self._thread.join()

    def _run(self, request: Request, work: Work) -> None:
        try:
            self._pool = InProcess(self.device)
            with Crew(self._pool) as crew:
                experiment = driver.prepare(request, crew)
                self.work = work = replace(work, id=experiment.id)
                with closing(driver.run(experiment, self.journal, crew, work.stop)) as happening:
                    for _ in happening:
                        pass
        except InputError as error:
            self.work = replace(work, fault=str(error))
        except Exception as error:
            log.exception("an experiment broke down")
            why = f"The experiment broke down ({type(error).__name__}); the server's log says more."
            self.work = replace(work, fault=why)

    def says(self, now: Progress | None) -> str:
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
