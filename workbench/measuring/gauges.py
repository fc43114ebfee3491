"""Gauges: how readings of a counter or of power become joules, and when they do not.

The GPU that torch uses is read as NVML knows it: its energy, and the causes that slow it down.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from workbench.runs.record import Energy
from workbench.studies.text import counted

SAMPLE_SECONDS = 0.05
BELOW_RESOLUTION = "below resolution"
SLICE = (
    "not attributable: this is a slice of a shared GPU (MIG), and only the whole board is metered"
)


class Unmeasurable(Exception):
    """The reason why there is no figure; its message is a whole `source` text."""


@dataclass(frozen=True)
class Counter:
    """Counters in joules that only rise.

    At most one wrap is noticed: RAPL's come about every half hour at full load.

    Attributes:
        source: the `source` of the energy
        parts: for each counter its reading and the value at which it wraps, None if it does not
        shortest: seconds of the shortest window that it resolves
        note: more for the `detail` of the energy
    """

    source: str
    parts: list[tuple[Callable[[], float], float | None]]
    shortest: float
    note: str = ""

    def start(self) -> list[float]:
        return [read() for read, _ in self.parts]

    def stop(self, begun: list[float], seconds: float) -> Energy:
        joules = 0.0
        for (read, wrap), before in zip(self.parts, begun, strict=True):
            risen = read() - before
            if risen < 0:
                if wrap is None:
                    raise Unmeasurable("not measured: the counter wrapped or was reset in between")
                risen += wrap
            joules += risen
        return _resolved(joules, self.source, seconds, self.shortest, self.note)


@dataclass
class PowerSamples:
    """The integral of power readings, by the trapezoid rule; its own thread takes them.

    Attributes:
        read: the power in W
        shortest: seconds of the shortest window that it resolves
        note: more for the `detail` of the energy
    """

    read: Callable[[], float]
    shortest: float
    note: str = ""

    def start(self) -> "Sampling":
        return Sampling(self.read)

    def stop(self, begun: "Sampling", seconds: float) -> Energy:
        samples = begun.end()
        joules = sum((w0 + w1) / 2 * (t1 - t0) for (t0, w0), (t1, w1) in pairwise(samples))
        return _resolved(
            joules,
            f"integrated from {len(samples)} power samples",
            seconds,
            self.shortest,
            self.note,
        )


def _resolved(joules: float, source: str, seconds: float, shortest: float, note: str) -> Energy:
    detail = f"{seconds:.2f} s" + (f"; {note}" if note else "")
    if seconds < shortest or joules == 0:
        return Energy(None, BELOW_RESOLUTION, f"{detail}; needs about {shortest:g} s or more")
    return Energy(joules, source, detail)


class Sampling:
    """Power readings from now until `end`, one at each edge included, as (seconds, W).

    Args:
        read: the power in W
    """

    def __init__(self, read: Callable[[], float]):
        self._read, self._samples, self._over = read, list[tuple[float, float]](), threading.Event()
        self._error: Exception | None = None
        self._take()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> list[tuple[float, float]]:
        self._over.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        self._take()
        return self._samples

    def _take(self) -> None:
        self._samples.append((time.perf_counter(), self._read()))

    def _run(self) -> None:
        try:
            while not self._over.wait(SAMPLE_SECONDS):
                self._take()
        except Exception as error:  # `end` raises it: a thread has no caller
            self._error = error


@dataclass(frozen=True)
class NoGauge:
    """The gauge of a device whose energy cannot be measured.

    Attributes:
        source: the reason
    """

    source: str

    def start(self) -> None:
        return None

    def stop(self, begun: None, seconds: float) -> Energy:
        return Energy(None, self.source)


# Measures energy: `stop(start(), seconds)` is the energy in between.
Gauge = Counter | PowerSamples | NoGauge


def board(device: torch.device, nvml: Any = None) -> tuple[Any, Any]:
    """The NVML binding and its handle of the board.

    The numbers of boards in torch may be others (CUDA_VISIBLE_DEVICES renumbers), so boards are
    matched by UUID, or else by PCI address.

    Args:
        device: torch's device
        nvml: by default the pynvml module; tests put a simulated one there

    Raises:
        Unmeasurable: for a slice of a board
        NVMLError: as NVML raises it
    """
    if "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        raise Unmeasurable(SLICE)
    if nvml is None:
        import pynvml  # loaded only if there is a GPU

        nvml = pynvml
    nvml.nvmlInit()
    properties: Any = torch.cuda.get_device_properties(device)
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
    except (nvml.NVMLError, AttributeError):
        handle = nvml.nvmlDeviceGetHandleByPciBusId(
            f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:"
            f"{properties.pci_device_id:02x}.0"
        )
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError, AttributeError):
        return nvml, handle  # a board without MIG
    if current == nvml.NVML_DEVICE_MIG_ENABLE:
        raise Unmeasurable(SLICE)
    return nvml, handle


def disturbed(device: torch.device, nvml: Any = None) -> str:
    """Why the GPU was slower than it could be, or shared; "" if it was neither."""
    nvml, handle = board(device, nvml)
    slow = nvml.nvmlClocksEventReasonSwPowerCap | nvml.nvmlClocksEventReasonHwSlowdown
    slow |= nvml.nvmlClocksEventReasonSwThermalSlowdown
    if nvml.nvmlDeviceGetCurrentClocksEventReasons(handle) & slow:
        return "the GPU slowed down because of its temperature or its power"
    others = [p for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
    return (
        f"{counted(len(others), 'other process', 'other processes')} used the GPU" if others else ""
    )
