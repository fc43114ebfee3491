"""Who decodes: this process, or one process for each GPU. Ray's actors are in `cluster`."""

import contextlib
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, Protocol

import torch

from decoders import InputError, ModelPair
from workbench.experiments.bench import Bench, Unit
from workbench.measuring.device import Device
from workbench.models.presets import PairChoice


class Worker(Protocol):
    """Does one thing at a time. A future that fails with one of `Pool.deaths` means that the worker is gone."""

    def submit(self, name: str, *arguments: Any) -> Future:
        """Call `Bench.<name>(*arguments)` there."""
        ...

    def close(self) -> None: ...


class Pool(Protocol):
    """count   workers that may run at once;   deaths  what the futures of a worker that is gone raise;   says  what they are, in words"""

    @property
    def count(self) -> int: ...

    @property
    def deaths(self) -> tuple[type[BaseException], ...]: ...

    @property
    def says(self) -> str: ...

    def start(self, number: int) -> Worker: ...

    def close(self) -> None: ...


class Crew:
    """The workers of a pool that are up. Use as a context; they are started when they are first needed."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self._up: dict[int, Worker] = {}

    def worker(self, number: int) -> Worker:
        if number not in self._up:
            self._up[number] = self.pool.start(number)
        return self._up[number]

    def free(self, busy: Collection[int]) -> list[int]:
        """Workers with nothing to do: those that are up, then numbers for those that may be started still."""
        up = [n for n in self._up if n not in busy]
        new = [n for n in range(self.pool.count) if n not in self._up and n not in busy]
        return up + new[: max(0, self.pool.count - len(self._up))]

    def lose(self, number: int) -> None:
        """Forget a worker that is gone; the next call starts another."""
        with contextlib.suppress(Exception):
            self._up.pop(number).close()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._up):
            self.lose(number)
        self.pool.close()


class InProcess:
    """One worker: the thread of a `Device`, which then waits its turn with whatever else the device runs."""

    count, says = 1, "in this process"
    deaths: tuple[type[BaseException], ...] = ()

    def __init__(self, device: Device):
        self._device, self._bench = device, Bench(lambda choice: self._pair(choice))
        self._thread = ThreadPoolExecutor(1, "experiment")
        self.waiting = False  # for something else that the device runs

    def _pair(self, choice: PairChoice) -> ModelPair:
        return self._device.ready(choice)

    def start(self, number: int) -> "InProcess":
        return self

    def submit(self, name: str, *arguments: Any) -> Future:
        return self._thread.submit(self._turn, name, arguments)

    def _turn(self, name: str, arguments: Sequence[Any]) -> Any:
        self.waiting = True
        with self._device.turn:
            self.waiting = False
            return self._device.call(getattr(self._bench, name), *arguments)

    def close(self) -> None:
        self._thread.shutdown(wait=True)


class Processes:
    """One process a device, such as "cuda:0" and "cuda:1", each with its own models. One that dies is replaced."""

    deaths: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, devices: Sequence[str]):
        self._devices, self.count = list(devices), len(devices)
        self.says = f"{self.count} processes: {', '.join(devices)}"

    def start(self, number: int) -> "OneProcess":
        return OneProcess(self._devices[number])

    def close(self) -> None: ...


class OneProcess:
    def __init__(self, device: str):
        self._device = device
        self._executor = ProcessPoolExecutor(1, get_context("spawn"))

    def submit(self, name: str, *arguments: Any) -> Future:
        return self._executor.submit(on_bench, name, *(placed(a, self._device) for a in arguments))

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


_BENCH: list[Bench] = []  # the one of a worker's process


def on_bench(name: str, *arguments: Any) -> Any:
    """Call the bench of this process."""
    if not _BENCH:
        _BENCH.append(Bench())
    return getattr(_BENCH[0], name)(*arguments)


def placed(value: Any, device: str) -> Any:
    """A choice, or a unit's, for one device if it does not name its own."""
    if isinstance(value, PairChoice) and value.device == "auto":
        return replace(value, device=device)
    if isinstance(value, Unit):
        return replace(value, choice=placed(value.choice, device))
    return value


def gpus(asked: str) -> Processes:
    """The processes for `--gpus all` or `--gpus 2`. Raises InputError if there are not so many."""
    there = torch.cuda.device_count()
    count = there if asked == "all" else int(asked) if asked.isdecimal() else 0
    if not 1 <= count <= there:
        raise InputError(
            f"--gpus takes `all` or a number up to the GPUs there are, and here there {_are(there)}; leave it out."
        )
    return Processes([f"cuda:{i}" for i in range(count)])


def _are(count: int) -> str:
    return "is none" if count == 0 else "is 1" if count == 1 else f"are {count}"
