"""Other work on the machine during a lap, from the counters of the operating system and the GPU."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from decoders.devices import device_of
from workbench.measuring.meter import disturbed
from workbench.runs.record import Load

TICKS = os.sysconf("SC_CLK_TCK")
# A thread of this process that computes for this share of a lap is one of the decoder's workers.
WORKING = 0.2


@dataclass(frozen=True)
class Sources:
    """The places where counters are read; tests put simulated ones there. Times are in seconds.

    Attributes:
        wall: the machine's clock
        proc: the folder of the kernel's counters
        cgroups: the files of the container's counters
        gpu: why the GPU is slower than it could be, or shared; "" if neither
    """

    wall: Callable[[], float] = time.perf_counter
    proc: Path = Path("/proc")
    cgroups: tuple[Path, ...] = (
        Path("/sys/fs/cgroup/cpu.stat"),
        Path("/sys/fs/cgroup/cpu/cpu.stat"),
    )
    gpu: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True)
class CounterReading:
    """All counters at one moment, None for those that cannot be read.

    Attributes:
        wall: the machine's clock, seconds
        throttled: seconds lost to the container's limit
        stolen: seconds lost to the hypervisor
        pressure: seconds in which some thread waited for a core
        tasks: for each other thread of this process, its seconds of computing and its involuntary
            switches
    """

    wall: float
    throttled: float | None
    stolen: float | None
    pressure: float | None
    tasks: Mapping[int, tuple[float, int]] | None


@dataclass(frozen=True)
class Watch:
    """Reads the counters around a lap, in the thread that decodes.

    Attributes:
        sources: the places where they are read
    """

    sources: Sources = field(default_factory=Sources)

    def read(self) -> CounterReading:
        return CounterReading(
            self.sources.wall(),
            *map(_tried, (self._throttled, self._stolen, self._pressure, self._tasks)),
        )

    def load(
        self, before: CounterReading, after: CounterReading, seconds: float, computed: float
    ) -> Load:
        """The load between two readings.

        Args:
            after: the second
            seconds: seconds on the lap's clock, fewer than on the wall's if it was stopped
            computed: seconds of computing of the decoding thread
        """
        wall = after.wall - before.wall
        if wall <= 0 or seconds <= 0:
            return Load()
        return Load(
            cpu_share=min(1.0, computed / seconds),
            preempted=_per_second(0, _workers_switches(before, after, wall), wall),
            throttled=_per_second(before.throttled, after.throttled, wall),
            stolen=_per_second(before.stolen, after.stolen, wall * (os.cpu_count() or 1)),
            pressure=_per_second(before.pressure, after.pressure, wall),
            gpu=_tried(self.sources.gpu),
        )

    def missing(self) -> list[str]:
        """The counters that cannot be read here, by their names in `Load`."""
        now = self.read()
        values = (now.tasks, now.throttled, now.stolen, now.pressure)
        names = ("preempted", "throttled", "stolen", "pressure")
        return [name for name, value in zip(names, values, strict=True) if value is None]

    def _throttled(self) -> float | None:
        for path in self.sources.cgroups:
            if path.exists():
                values = dict(line.split() for line in path.read_text().splitlines())
                if "throttled_usec" in values:
                    return int(values["throttled_usec"]) / 1e6
                if "throttled_time" in values:
                    return int(values["throttled_time"]) / 1e9
        return None

    def _stolen(self) -> float:
        return int((self.sources.proc / "stat").read_text().split("\n", 1)[0].split()[8]) / TICKS

    def _pressure(self) -> float:
        some, *_ = (self.sources.proc / "pressure" / "cpu").read_text().split("\n", 1)
        return int(some.rsplit("total=", 1)[1]) / 1e6

    def _tasks(self) -> dict[int, tuple[float, int]]:
        """The other threads of this process; one that ends while it is read is left out."""
        own, tasks = threading.get_native_id(), {}
        for folder in (self.sources.proc / "self" / "task").iterdir():
            if int(folder.name) != own and (task := _tried(partial(_task, folder))):
                tasks[int(folder.name)] = task
        return tasks


def watch(device: torch.device | str) -> Watch:
    """The watch for work on a device."""
    device = torch.device(device)
    return (
        Watch(Sources(gpu=lambda: disturbed(device)))
        if device_of(device).meter == "GPU"
        else Watch()
    )


def _task(folder: Path) -> tuple[float, int]:
    times = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    switches = (folder / "status").read_text().rsplit("nonvoluntary_ctxt_switches:", 1)[1]
    return (int(times[11]) + int(times[12])) / TICKS, int(switches)


def _workers_switches(before: CounterReading, after: CounterReading, wall: float) -> int | None:
    """The involuntary switches of the workers; None if threads cannot be read."""
    if before.tasks is None or after.tasks is None:
        return None
    count = 0
    for task, (seconds, switches) in after.tasks.items():
        earlier = before.tasks.get(task, (0.0, 0))
        if seconds - earlier[0] >= WORKING * wall:
            count += switches - earlier[1]
    return count


def _tried(read: Callable[[], Any]) -> Any:
    """The counter, or None if it cannot be read: no counter may break the work."""
    try:
        return read()
    except Exception:
        return None


def _per_second(before: float | None, after: float | None, seconds: float) -> float | None:
    return None if before is None or after is None else max(0.0, after - before) / seconds
