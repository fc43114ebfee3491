"""The place where studies run: the thread that decodes, or a borrowed GPU."""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

import torch

from decoders import ModelPair
from workbench.engines.addresses import engines as named
from workbench.measuring import session
from workbench.measuring.asking import Engines
from workbench.measuring.cycles import PATIENCE_SECONDS
from workbench.measuring.threads import Threads, chosen
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.events import Ended, Event
from workbench.runs.timing import unsteady
from workbench.studies.study import Study

Item = TypeVar("Item")
END = object()
TURN_SECONDS = 0.2  # how soon Stop is heard while something else has the device
# For the seconds that a study takes from a visitor's quota on ZeroGPU: loading, then decoding at a
# cautious speed, up to a limit.
LOADING_SECONDS, TOKENS_PER_SECOND, MOST_SECONDS = 20, 10, 120


class Device:
    """The one device of this process; one study at a time runs on it.

    All loading and decoding happens in one thread: each thread that computes has its own OpenMP
    workers, and as soon as there are more workers than cores none of them spins while it waits;
    decoding a small model then takes more than twice as long. On a ZeroGPU Space the study runs in
    another process, on a borrowed GPU.

    Args:
        keeper: the pair in memory
        engines: gives the engines that studies may ask, by name
    """

    def __init__(self, keeper: PairKeeper, engines: Engines = named):
        self.keeper, self.engines = keeper, engines
        # Its holder has the device: one study, or one item of an experiment.
        self.turn = threading.Lock()
        self._thread = ThreadPoolExecutor(1, "device")
        self._study = on_device(self._here)
        self._question = on_device(self._answered, lambda *_: LOADING_SECONDS)
        self._threads: tuple[ModelPair, Threads] | None = None

    def run(
        self, study: Study, choice: PairChoice, stopped: threading.Event | None = None
    ) -> Generator[Event, None, None]:
        """The events of `session.run`. Only one caller at a time may use it.

        Args:
            study: the study
            choice: the pair to run it with
            stopped: when set, ends the study within a forward pass; before it has the device,
                without an event

        Raises:
            InputError: if the pair cannot be loaded or cannot run the study
        """
        # A threading.Event does not reach the other process; closing the iterator ends its job.
        away = zero_gpu()
        asked = (study, choice, None if away else stopped)
        while not self.turn.acquire(timeout=TURN_SECONDS):
            if stopped is not None and stopped.is_set():
                return
        try:
            with closing(self.iterate(self._study, *asked)) as events:
                for event in events:
                    yield event
                    if away and stopped is not None and stopped.is_set():
                        return
        finally:
            self.turn.release()

    def ask(self, choice: PairChoice, function: Callable[..., Item], *arguments: Any) -> Item:
        """Call a function where studies run, when it is its turn.

        Args:
            choice: the pair to load
            function: called with the pair and the arguments; returns plain data
            arguments: plain data
        """
        with (
            self.turn,
            closing(self.iterate(self._question, choice, function, *arguments)) as answers,
        ):
            return next(answers)

    def pair(self, choice: PairChoice) -> ModelPair:
        """The pair, loaded if another one is in memory, with its threads chosen.

        Raises:
            InputError: with the reason, if the pair cannot be used
        """
        return self.call(self.ready, choice)[0]

    def call(self, function: Callable[..., Item], *arguments: Any) -> Item:
        """Run the function in the thread that decodes, and return its result."""
        return self._thread.submit(function, *arguments).result()

    def iterate(
        self, make: Callable[..., Generator[Item, None, None]], *arguments: Any
    ) -> Generator[Item, None, None]:
        """The items of `make(*arguments)`, an iterator that lives in the thread that decodes."""
        items = self.call(make, *arguments)
        try:
            while (item := self.call(next, items, END)) is not END:
                yield item
        finally:
            self.call(items.close)

    def _here(
        self, study: Study, choice: PairChoice, stopped: threading.Event | None
    ) -> Generator[Event, None, None]:
        pair, threads = self.ready(choice)
        # There is no patience where a visitor pays for each second that was reckoned with.
        patience = 0.0 if zero_gpu() else PATIENCE_SECONDS
        running = session.run(
            pair, study, threads=threads, cancel=stopped, patience=patience, engines=self.engines
        )
        # In Python 3.12.0 to 3.12.3 a generator that is closed keeps its locals (gh-118272).
        with closing(running) as events:
            for event in events:
                if isinstance(event, Ended) and any(unsteady(r, None) for r in event.run.results):
                    self._threads = None  # something else is on the machine now
                yield event

    def _answered(
        self, choice: PairChoice, function: Callable[..., Item], *arguments: Any
    ) -> Iterator[Item]:
        yield function(self.ready(choice)[0], *arguments)

    def ready(self, choice: PairChoice) -> tuple[ModelPair, Threads]:
        """The pair and its threads, which hold for the calling thread: the one that decodes.

        Threads are chosen anew after another pair or an unsteady run.

        Args:
            choice: the pair

        Raises:
            InputError: with the reason, if the pair cannot be used
        """
        pair = self.keeper.get(choice)
        if self._threads is None or self._threads[0] is not pair:
            self._threads = pair, chosen(pair)
        torch.set_num_threads(self._threads[1].count)
        return self._threads


def zero_gpu() -> bool:
    return bool(os.environ.get("SPACES_ZERO_GPU"))


def on_device(
    job: Callable[..., Any], seconds: Callable[..., int] | None = None
) -> Callable[..., Any]:
    """The job as this place runs it: with borrowed GPU time on a ZeroGPU Space, plainly elsewhere.

    On a Space the job runs in another process, so it takes and yields plain data only.

    Args:
        job: the job
        seconds: the most GPU seconds that it takes, from its arguments; `seconds_needed` by default
    """
    if not zero_gpu():
        return job
    import spaces  # only ZeroGPU machines have it

    return spaces.GPU(duration=seconds or seconds_needed)(job)


def seconds_needed(study: Study, *_: Any) -> int:
    """GPU seconds to ask for, from the study's tokens.

    A visitor with less quota than that is refused.
    """
    texts = sum(len(job.chosen(len(study.prompts))) for job in study.jobs())
    tokens = texts * study.settings.max_new_tokens * study.settings.timings
    return min(MOST_SECONDS, LOADING_SECONDS + round(tokens / TOKENS_PER_SECOND))
