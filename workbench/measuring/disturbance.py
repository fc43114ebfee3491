"""What else happened on the machine while a lap ran: the counters of the operating system and of the GPU."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from workbench.measuring.nvml import disturbed
from workbench.runs.record import Load

TICKS = os.sysconf("SC_CLK_TCK")
WORKING = 0.2  # share of a lap that a thread of this process computed to count as one of the decoder's workers


@dataclass(frozen=True)
class Sources:
    """Where counters are read; tests put simulated ones there. Times are in seconds.

    wall           the machine's clock
    proc, cgroups  the folder and the files of the kernel's counters;   gpu  why the GPU is slower than it could be, or shared ("" if neither)
    """

    wall: Callable[[], float] = time.perf_counter
    proc: Path = Path("/proc")
    cgroups: tuple[Path, ...] = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))
    gpu: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one moment, None for those that cannot be read. tasks  for each other thread of this process its seconds of
    computing and its involuntary switches."""

    wall: float
    throttled: float | None
    stolen: float | None
    pressure: float | None
    tasks: Mapping[int, tuple[float, int]] | None


@dataclass(frozen=True)
class Watch:
    """Reads the counters around a lap, in the thread that decodes."""

    sources: Sources = field(default_factory=Sources)

    def read(self) -> Reading:
        return Reading(self.sources.wall(), *map(_tried, (self._throttled, self._stolen, self._pressure, self._tasks)))

    def load(self, before: Reading, after: Reading, seconds: float, computed: float) -> Load:
        """What happened in between.

        seconds    that the lap's clock ran, less than the wall's if it was stopped;   computed  of the decoding thread in these seconds
        """
        wall = after.wall - before.wall
        if wall <= 0 or seconds <= 0:
            return Load()
        return Load(
            cpu_share=min(1.0, computed / seconds),
            preempted=_per(_workers_switches(before, after, wall), wall),
            throttled=_per(_risen(before.throttled, after.throttled), wall),
            stolen=_per(_risen(before.stolen, after.stolen), wall * (os.cpu_count() or 1)),
            pressure=_per(_risen(before.pressure, after.pressure), wall),
            gpu=_tried(self.sources.gpu),
        )

    def missing(self) -> list[str]:
        """The counters that cannot be read here, by their names in `Load`."""
        now = self.read()
        found = {"preempted": now.tasks, "throttled": now.throttled, "stolen": now.stolen, "pressure": now.pressure}
        return [name for name, value in found.items() if value is None]

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
        line = (self.sources.proc / "pressure" / "cpu").read_text().split("\n", 1)[0]
        return int(line.rsplit("total=", 1)[1]) / 1e6

    def _tasks(self) -> dict[int, tuple[float, int]]:
        """The other threads of this process; one that ends while it is read is left out."""
        own, tasks = threading.get_native_id(), {}
        for folder in (self.sources.proc / "self" / "task").iterdir():
            if int(folder.name) != own and (found := _tried(partial(_task, folder))):
                tasks[int(folder.name)] = found
        return tasks


def watch(device: torch.device | str) -> Watch:
    """The watch for what runs on a device."""
    device = torch.device(device)
    return Watch(Sources(gpu=lambda: disturbed(device))) if device.type == "cuda" else Watch()


def _task(folder: Path) -> tuple[float, int]:
    times = (folder / "stat").read_text().rsplit(")", 1)[1].split()
    switches = (folder / "status").read_text().rsplit("nonvoluntary_ctxt_switches:", 1)[1]
    return (int(times[11]) + int(times[12])) / TICKS, int(switches)


def _workers_switches(before: Reading, after: Reading, wall: float) -> int | None:
    """The involuntary switches of the other threads that computed; None if threads cannot be read."""
    if before.tasks is None or after.tasks is None:
        return None
    count = 0
    for task, (seconds, switches) in after.tasks.items():
        earlier = before.tasks.get(task, (0.0, 0))
        if seconds - earlier[0] >= WORKING * wall:
            count += switches - earlier[1]
    return count


def _tried(read: Callable[[], Any]) -> Any:
    """What can be read, else None: no counter may break the work."""
    try:
        return read()
    except Exception:
        return None


def _risen(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _per(amount: float | None, seconds: float) -> float | None:
    return None if amount is None else max(0.0, amount) / seconds
