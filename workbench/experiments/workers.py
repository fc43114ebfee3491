"""Workers: this process, one process for each GPU, or actors of Ray for each GPU or core."""

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from typing import Any

import torch

from decoders import InputError
from decoders.errors import quoted
from workbench.experiments.bench import Bench, Unit
from workbench.measuring.device import Device
from workbench.models.presets import PairChoice


def answer(future: Future) -> Any:
    """The result of a future of a worker; an error is the one that was raised there.

    Ray wraps it.
    """
    try:
        return future.result()
    except Exception as error:
        raise getattr(error, "cause", None) or error from None


class Crew:
    """The running workers of a pool, each started when it is first needed.

    A worker does one thing at a time. If a future fails with one of the pool's `deaths`, the worker
    is gone.

    Use it as a context, which closes them.
    """

    def __init__(self, pool: "Pool"):
        self.pool = pool
        self._up: dict[int, Worker] = {}

    def worker(self, number: int) -> "Worker":
        """The worker with this number, which is started if it is not running."""
        if number not in self._up:
            self._up[number] = self.pool.start(number)
        return self._up[number]

    def free(self, busy: Collection[int]) -> list[int]:
        """Numbers of idle workers: first those that run, then those that may still be started."""
        up = [n for n in self._up if n not in busy]
        new = [n for n in range(self.pool.count) if n not in self._up and n not in busy]
        return up + new[: max(0, self.pool.count - len(self._up))]

    def lose(self, number: int) -> None:
        """Forget a dead worker; the next call starts another."""
        with contextlib.suppress(Exception):
            self._up.pop(number).close()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for number in list(self._up):
            self.lose(number)
        self.pool.close()


class InProcess:
    """One worker: the thread of a `Device`, shared with everything else that runs there."""

    count, says = 1, "in this process"
    deaths: tuple[type[BaseException], ...] = ()

    def __init__(self, device: Device):
        self._device, self._bench = device, Bench(lambda choice: device.ready(choice)[0])
        self._thread = ThreadPoolExecutor(1, "experiment")
        self.waiting = False  # for something else that the device runs

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
    """One process per device, each with its own models. If one dies, it is replaced.

    Args:
        devices: such as "cuda:0" and "cuda:1"
    """

    deaths: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, devices: Sequence[str]):
        self._devices, self.count = list(devices), len(devices)
        self.says = f"{self.count} processes: {', '.join(devices)}"

    def start(self, number: int) -> "OneProcess":
        return OneProcess(self._devices[number])

    def close(self) -> None: ...


class OneProcess:
    """A worker that is a process."""

    def __init__(self, device: str):
        self._device = device
        self._executor = ProcessPoolExecutor(1, get_context("spawn"))

    def submit(self, name: str, *arguments: Any) -> Future:
        return self._executor.submit(on_bench, name, *(placed(a, self._device) for a in arguments))

    def close(self) -> None:
        self._executor.shutdown(wait=True, cancel_futures=True)


_bench = cache(Bench)  # of a worker's process


def on_bench(name: str, *arguments: Any) -> Any:
    """Call the bench of this process."""
    return getattr(_bench(), name)(*arguments)


def placed(value: Any, device: str) -> Any:
    """A choice of a pair, or a unit's, moved to a device if it does not name one."""
    if isinstance(value, PairChoice) and value.device == "auto":
        return replace(value, device=device)
    return replace(value, choice=placed(value.choice, device)) if isinstance(value, Unit) else value


def gpus(wanted: str) -> Processes:
    """The processes for `--gpus all` or `--gpus 2`.

    Args:
        wanted: "all" or a number

    Raises:
        InputError: if this machine has fewer GPUs
    """
    there = torch.cuda.device_count()
    count = there if wanted == "all" else int(wanted) if wanted.isdecimal() else 0
    if not 1 <= count <= there:
        raise InputError(
            "--gpus takes `all` or a number of GPUs up to those of this machine, which has "
            f"{there or 'none'}; omit it to use one device."
        )
    return Processes([f"cuda:{i}" for i in range(count)])


os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
PATIENCE = 5.0  # seconds to wait for a cluster to answer
THREADS = {"WORKBENCH_THREADS": "1", "OMP_NUM_THREADS": "1"}  # of an actor that has one core


class Cluster:
    """A pool of actors.

    If an actor dies or its node leaves, it is started again where there is room.

    Args:
        address: of the cluster; "auto" for this machine's, "local" to start one here
        make: makes an actor's bench

    Raises:
        InputError: if Ray is not installed or the cluster cannot be reached
    """

    def __init__(self, address: str = "local", make: Callable[[], Any] = Bench):
        try:
            import ray
        except ImportError:
            raise InputError("Ray is not installed; `pip install ray`, or omit --ray.") from None
        self._ray, self._make = ray, make
        self.deaths = (
            ray.exceptions.RayActorError,
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
        )
        started: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        try:
            # If nothing listens at HOST:PORT, Ray itself would try for minutes.
            host, colon, port = address.rpartition(":")
            if colon and port.isdecimal():
                socket.create_connection((host, int(port)), PATIENCE).close()
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                ignore_reinit_error=True,
                **started,
            )
        except (OSError, ValueError, RuntimeError) as error:
            why = str(error).strip().partition("\n")[0]
            raise InputError(
                f"The Ray cluster at {quoted(address)} cannot be reached ({why}); start it with "
                "`ray start --head`."
            ) from None
        self._kind = "GPU" if ray.cluster_resources().get("GPU", 0) >= 1 else "CPU"
        nodes = sum(node["Alive"] for node in ray.nodes())
        self.says = (
            f"{self.count} Ray actors on {nodes} nodes, one for each "
            f"{'GPU' if self._kind == 'GPU' else 'core'}"
        )

    @property
    def count(self) -> int:
        """The number of actors for which the nodes now have room."""
        return max(1, int(self._ray.cluster_resources().get(self._kind, 1)))

    def start(self, number: int) -> "Remote":
        gpu = self._kind == "GPU"
        needs = {"num_gpus": 1, "num_cpus": 0} if gpu else {"num_cpus": 1}
        make = self._ray.remote(Actor).options(**needs).remote
        return Remote(self._ray, make(self._make, {} if gpu else THREADS))

    def close(self) -> None:
        self._ray.shutdown()


class Actor:
    """A process that holds a bench."""

    def __init__(self, make: Callable[[], Any], environ: dict[str, str]):
        os.environ.update(environ)
        self._bench = make()

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self._bench, name)(*arguments)


class Remote:
    """A worker that is an actor."""

    def __init__(self, ray: Any, actor: Any):
        self._ray, self._actor = ray, actor

    def submit(self, name: str, *arguments: Any) -> Future:
        return self._actor.call.remote(name, *arguments).future()

    def close(self) -> None:
        self._ray.kill(self._actor)


# They start workers: `count` at most at once, `says` in words.
Pool = InProcess | Processes | Cluster
# They call a bench: `submit("run", unit)`, say.
Worker = InProcess | OneProcess | Remote
