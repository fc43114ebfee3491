"""The place where studies run: the thread that decodes, or a borrowed GPU; and its threads.

If anything else runs on the machine, and a visitor's browser is enough, as many OpenMP threads as
cores are slow: each waits for the others at every product, and one that has lost its core keeps all
of them waiting. One number serves all decoders of a run. It is measured on the loaded pair, under
the present load, and again after an unsteady run if that is some time ago.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import copy_context
from statistics import median
from typing import Any, TypeVar

import torch

import decoders
from decoders import ModelPair, catalog
from decoders.devices import device_of
from workbench.engines.addresses import engines as named
from workbench.measuring import session
from workbench.measuring.served import Engines
from workbench.models.keeper import PairKeeper, Threads
from workbench.models.presets import PairChoice
from workbench.runs.events import Ended, Event
from workbench.runs.timing import unsteady
from workbench.studies.study import Study, count_of, in_turn

VARIABLE = "WORKBENCH_THREADS"
DRAFT_LENGTH = 4
PROMPT, TOKENS = 8, 16  # of a trial
TRIALS = 5  # of each number of threads, in turn
PATIENCE = 2.0  # seconds of trials: each number has one, others follow while time is left
AGAIN = 600.0  # seconds for which a choice holds, whatever else runs on the machine
HOPELESS = 2.0  # a number of threads this many times as slow as the best is not tried again
# More threads must save at least this share of a round: they are the first to suffer from other
# programs.
LEAST_GAIN = 0.03


def chosen(pair: ModelPair, environ: Mapping[str, str] | None = None) -> Threads:
    """The number of threads that makes a typical round of this pair quickest here and now.

    To be called in the thread that decodes: each thread has its own number.

    Args:
        environ: the environment; by default the process's

    Raises:
        InputError: if WORKBENCH_THREADS is not a number
    """
    if given := count_of(os.environ if environ is None else environ, VARIABLE, None):
        return Threads(given, f"set by {VARIABLE}")
    if not device_of(pair.target.device).on_host:
        return Threads(torch.get_num_threads(), "the models run on a GPU")
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    counts = sorted({2**i for i in range(cores.bit_length()) if 2**i <= cores} | {cores})
    if cores == 1:
        return Threads(1, "there is one core")
    before = torch.get_num_threads()
    try:
        return quickest(counts, lambda count, limit: _round_seconds(pair, count, limit))
    finally:
        torch.set_num_threads(before)


def quickest(
    counts: Sequence[int], seconds: Callable[[int, float], float], patience: float = PATIENCE
) -> Threads:
    """The count with the least median of TRIALS timings, taken in turn, or of fewer long ones.

    A larger count must be clearly quicker than a smaller one.

    Args:
        seconds: times one trial of a count; it may give up after the seconds that are its second
            argument. A count that took HOPELESS times as long as the best is not tried again
        patience: seconds after which no other turn begins
    """
    timings: dict[int, list[float]] = {count: [] for count in counts}
    began = time.monotonic()
    for trial in range(TRIALS):
        if trial and time.monotonic() - began > patience:
            break
        for count in in_turn(counts, trial):
            best = min((median(each) for each in timings.values() if each), default=math.inf)
            if not timings[count] or median(timings[count]) < HOPELESS * best:
                timings[count].append(seconds(count, HOPELESS * best))
    medians = {count: median(each) for count, each in timings.items()}
    best = counts[0]
    for count in counts[1:]:
        if medians[count] < (1 - LEAST_GAIN) * medians[best]:
            best = count
    words = ", ".join(f"{1e3 * medians[c]:.1f} ms with {c}" for c in counts)
    return Threads(best, f"measured: a plain pass and a speculative round take {words}")


def _round_seconds(pair: ModelPair, count: int, limit: float) -> float:
    """The seconds of a plain target pass plus those of a speculative round.

    The round is DRAFT_LENGTH draft passes and a verification; without a draft it is left out.
    """
    torch.set_num_threads(count)
    methods = [catalog["greedy"]()]
    if pair.draft is not None:
        methods.append(catalog["speculative"](draft_length=DRAFT_LENGTH))
    return sum(_median_round(pair, method, limit) for method in methods)


def _median_round(pair: ModelPair, method: decoders.Method, limit: float) -> float:
    """Seconds per round, without the first two.

    The first reads the prompt, and the next may wake the workers. A round that takes longer than
    `limit` is the last.
    """
    budget = TOKENS if pair.positions is None else max(1, min(TOKENS, pair.positions - PROMPT))
    options: dict[str, Any] = {"max_new_tokens": budget, "temperature": 0.0, "ignore_eos": True}
    rounds, began = [], time.perf_counter()
    with closing(decoders.stream(pair, [0, 1] * (PROMPT // 2), method, **options)) as stream:
        for event in stream:
            if event.round is not None:
                rounds.append(time.perf_counter() - began)
                if rounds[-1] > (limit if len(rounds) > 2 else 4 * limit):
                    break
                began = time.perf_counter()
    return median(rounds[2:] or rounds)


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
        self._chosen = -math.inf  # when they were

    def run(
        self, study: Study, choice: PairChoice, stopped: threading.Event | None = None
    ) -> Generator[Event, None, None]:
        """The events of `session.run`. Only one caller at a time may use it.

        Args:
            stopped: when set, ends the study within a forward pass; before it has the device,
                without an event

        Raises:
            InputError: if the pair cannot be loaded or cannot run the study
        """
        # A threading.Event does not reach the other process; closing the iterator ends its job.
        away = zero_gpu()
        order = (study, choice, None if away else stopped)
        while not self.turn.acquire(timeout=TURN_SECONDS):
            if stopped is not None and stopped.is_set():
                return
        try:
            events = self.call(self._study, *order)
            try:
                while (event := self.call(next, events, END)) is not END:
                    yield event
                    if away and stopped is not None and stopped.is_set():
                        return
            finally:
                self.call(events.close)
        finally:
            self.turn.release()

    def ask(self, choice: PairChoice, function: Callable[..., Item], *arguments: Any) -> Item:
        """Call a function where studies run, when it is its turn.

        Args:
            function: called with the pair and the arguments; returns plain data
            arguments: plain data
        """
        with self.turn:
            return self.call(self._question, choice, function, *arguments)

    def pair(self, choice: PairChoice) -> ModelPair:
        """The pair, loaded if another one is in memory, with its threads chosen.

        Raises:
            InputError: with the reason, if the pair cannot be used
        """
        return self.call(self.ready, choice)[0]

    def call(self, function: Callable[..., Item], *arguments: Any) -> Item:
        """Run the function in the thread that decodes, and return its result.

        It knows the visitor who asks, whose seconds a borrowed GPU counts.
        """
        return self._thread.submit(copy_context().run, function, *arguments).result()

    def _here(
        self, study: Study, choice: PairChoice, stopped: threading.Event | None
    ) -> Generator[Event, None, None]:
        pair, threads = self.ready(choice)
        # There is no patience where a visitor pays for each second that was reckoned with.
        patience = 0.0 if zero_gpu() else session.PATIENCE_SECONDS
        running = session.run(
            pair, study, threads=threads, cancel=stopped, patience=patience, engines=self.engines
        )
        # In Python 3.12.0 to 3.12.3 a generator that is closed keeps its locals (gh-118272).
        with closing(running) as events:
            for event in events:
                old = time.monotonic() - self._chosen > AGAIN
                if (
                    old
                    and isinstance(event, Ended)
                    and any(unsteady(r, None) for r in event.run.results)
                ):
                    self._threads = None  # something else is on the machine now
                yield event

    def _answered(self, choice: PairChoice, function: Callable[..., Item], *arguments: Any) -> Item:
        return function(self.ready(choice)[0], *arguments)

    def ready(self, choice: PairChoice) -> tuple[ModelPair, Threads]:
        """The pair and its threads, which hold for the calling thread: the one that decodes.

        Threads are chosen anew for another pair, and after an unsteady run, but not for each of
        many: choosing keeps the next visitor waiting.

        Raises:
            InputError: with the reason, if the pair cannot be used
        """
        pair = self.keeper.get(choice)
        if self._threads is None or self._threads[0] is not pair:
            self._threads, self._chosen = (pair, chosen(pair)), time.monotonic()
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
    texts = len(study.prompts) * len(study.jobs())
    tokens = texts * study.settings.max_new_tokens * study.settings.timings
    return min(MOST_SECONDS, LOADING_SECONDS + round(tokens / TOKENS_PER_SECOND))
