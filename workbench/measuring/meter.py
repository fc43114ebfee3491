"""What a stretch of work took of the machine: its energy, and the other work that disturbed it.

Energy is in joules, or it is the reason why they are not known. The source is a counter; a window
that it cannot resolve has no figure. The GPU that torch uses is read as NVML knows it: its energy,
and who else uses it.

Source:
    Yang et al. 2023, Part-time power measurements: nvidia-smi's lack of attention (arXiv
        2312.02741).
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from decoders.devices import device_of
from workbench.runs.record import Energy, Load
from workbench.studies.settings import counted

BELOW_RESOLUTION = "below resolution"
SLICE = (
    "not attributable: this is a slice of a shared GPU (MIG), and only the whole board is metered"
)


class Unmeasurable(Exception):
    """The reason why there is no figure; its message is a whole `source` text."""


@dataclass(frozen=True)
class Gauge:
    """Counters in joules that only rise; without any, energy cannot be measured.

    `stop(start(), seconds)` is the energy in between. At most one wrap is noticed: RAPL's come
    about every half hour at full load.

    Attributes:
        source: the `source` of the energy; without counters, the reason
        parts: for each counter its reading and the value at which it wraps, None if it does not
        shortest: seconds of the shortest window that they resolve
        note: more for the `detail` of the energy
    """

    source: str
    parts: Sequence[tuple[Callable[[], float], float | None]] = ()
    shortest: float = 0.0
    note: str = ""

    def start(self) -> list[float]:
        return [read() for read, _ in self.parts]

    def stop(self, begun: list[float], seconds: float) -> Energy:
        if not self.parts:
            return Energy(None, self.source)
        joules, detail = 0.0, f"{seconds:.2f} s" + (f"; {self.note}" if self.note else "")
        for (read, wrap), before in zip(self.parts, begun, strict=True):
            risen = read() - before
            if risen < 0:
                if wrap is None:
                    raise Unmeasurable("not measured: the counter wrapped or was reset in between")
                risen += wrap
            joules += risen
        if seconds < self.shortest or joules == 0:
            needs = f"{detail}; needs about {self.shortest:g} s or more"
            return Energy(None, BELOW_RESOLUTION, needs)
        return Energy(joules, self.source, detail)


def board(device: torch.device, nvml: Any = None) -> tuple[Any, Any]:
    """The NVML binding and its handle of the board.

    The numbers of boards in torch may be others (CUDA_VISIBLE_DEVICES renumbers), so boards are
    matched by PCI address.

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
    ours: Any = torch.cuda.get_device_properties(device)
    handle = nvml.nvmlDeviceGetHandleByPciBusId(
        f"{ours.pci_domain_id:08x}:{ours.pci_bus_id:02x}:{ours.pci_device_id:02x}.0"
    )
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError, AttributeError):
        return nvml, handle  # a board without MIG
    if current == nvml.NVML_DEVICE_MIG_ENABLE:
        raise Unmeasurable(SLICE)
    return nvml, handle


def disturbed(device: torch.device, nvml: Any = None) -> str:
    """Who else used the GPU; "" if nobody did."""
    nvml, handle = board(device, nvml)
    others = [p for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
    return (
        f"{counted(len(others), 'other process', 'other processes')} used the GPU" if others else ""
    )


# The GPU's counter ticks about every 0.1 s.
SHORTEST_GPU_SECONDS = 1.0
SHORTEST_CPU_SECONDS = 0.05  # RAPL ticks about every millisecond
POWERCAP = Path("/sys/class/powercap")


@dataclass
class Window:
    """A measured stretch of work; `energy` is known once it is over."""

    energy: Energy = field(
        default_factory=lambda: Energy(None, "not measured: the window is still open")
    )


@dataclass(frozen=True)
class Meter:
    """A gauge for the device that does the work.

    Attributes:
        gauge: the gauge
        synchronize: waits until that device is idle, at both edges of a window
    """

    gauge: Gauge
    synchronize: Callable[[], None] = lambda: None

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Measure the body of a `with`.

        A gauge that fails gives "not measured: reason" and never breaks the work.
        """
        window, gauge = Window(), self.gauge
        self.synchronize()
        began = time.perf_counter()
        try:
            begun = gauge.start()
        except Exception as error:
            gauge, begun = Gauge(_reason(error)), []
        try:
            yield window
            self.synchronize()
        finally:
            try:
                window.energy = gauge.stop(begun, time.perf_counter() - began)
            except Exception as error:
                window.energy = Energy(None, _reason(error))


def open_meter(device: torch.device | str, nvml: Any = None, powercap: Path = POWERCAP) -> Meter:
    """The best meter of a device; only that device is counted, however many there are.

    Args:
        device: torch's device
        nvml: the NVML binding, by default the pynvml module; tests put a simulated one there
        powercap: the folder of RAPL's counters; likewise
    """
    device = torch.device(device)
    try:
        ours = device_of(device)
        if ours.meter == "GPU":
            return Meter(_gpu_gauge(device, nvml), ours.synchronize)
        if ours.meter == "CPU":
            return Meter(_cpu_gauge(powercap))
        raise Unmeasurable(f"not measured: there is no energy counter for device {device.type}")
    except Exception as error:
        return Meter(Gauge(_reason(error)))


def _reason(error: Exception) -> str:
    return (
        str(error)
        if isinstance(error, Unmeasurable)
        else f"not measured: {error or type(error).__name__}"
    )


def _gpu_gauge(device: torch.device, nvml: Any) -> Gauge:
    nvml, handle = board(device, nvml)

    def counter() -> float:
        return nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # mJ

    try:
        counter()
    except (nvml.NVMLError, AttributeError) as error:
        raise Unmeasurable(f"not measured: this GPU has no energy counter ({error})") from None
    return Gauge("measured: GPU energy counter", [(counter, None)], SHORTEST_GPU_SECONDS)


def _cpu_gauge(powercap: Path) -> Gauge:
    """RAPL's packages and their memory, which is the only part that a package does not contain."""
    zones = {path: _label(path) for path in sorted(powercap.glob("intel-rapl:*"))}
    packages = [path for path, label in zones.items() if label.startswith("package")]
    memory = [path for path, label in zones.items() if label == "dram"]
    if not packages:
        raise Unmeasurable("not measured: this machine shows no RAPL energy counter")
    try:
        parts: list[tuple[Callable[[], float], float | None]] = [
            (partial(_microjoules, p / "energy_uj"), _wrap(p)) for p in (*packages, *memory)
        ]
        for read, _ in parts:
            read()
    except PermissionError as error:
        raise Unmeasurable(
            f"not measured: {error.filename} may be read by root only (chmod a+r makes it readable)"
        ) from error
    counted = "package and memory" if memory else "package"
    without = "" if memory else "; memory has no counter here"
    return Gauge(
        f"CPU {counted} (RAPL)",
        parts,
        SHORTEST_CPU_SECONDS,
        f"the whole {counted}, other programs included{without}",
    )


def _wrap(zone: Path) -> float | None:
    """The joules at which a counter wraps; None if that is not told, as in some machines."""
    try:
        return _microjoules(zone / "max_energy_range_uj") or None
    except (FileNotFoundError, ValueError):
        return None


def _label(zone: Path) -> str:
    try:
        return (zone / "name").read_text().strip()
    except OSError:
        return ""


def _microjoules(file: Path) -> float:
    return int(file.read_text()) / 1e6


@dataclass(frozen=True)
class Watch:
    """Reads around a lap, in the thread that decodes, what disturbs it.

    Attributes:
        waits: the kernel's file on threads that wait for a core; tests put a simulated one here
        gpu: who else uses the GPU; "" if nobody does
    """

    waits: Path = Path("/proc/pressure/cpu")
    gpu: Callable[[], str | None] = lambda: None

    def read(self) -> tuple[float, float]:
        """The wall's clock, and the seconds in which some thread waited; NaN if that is unknown."""
        try:
            some, *_ = self.waits.read_text().split("\n", 1)
            waited = int(some.rsplit("total=", 1)[1]) / 1e6
        except (OSError, ValueError, IndexError):
            waited = math.nan
        return time.perf_counter(), waited

    def load(
        self, before: tuple[float, float], after: tuple[float, float], seconds: float,
        computed: float,
    ) -> Load:  # fmt: skip
        """The load between two readings.

        Args:
            after: the second
            seconds: seconds on the lap's clock, fewer than on the wall's if it was stopped
            computed: seconds of computing of the decoding thread: a container's limit, the
                machine's host and other programs make them fewer
        """
        wall, waited = after[0] - before[0], after[1] - before[1]
        if wall <= 0 or seconds <= 0:
            return Load()
        try:
            gpu = self.gpu()
        except Exception:  # no counter may break the work
            gpu = None
        pressure = None if math.isnan(waited) else max(0.0, waited) / wall
        return Load(cpu_share=min(1.0, computed / seconds), pressure=pressure, gpu=gpu)


def watch(device: torch.device | str) -> Watch:
    device = torch.device(device)
    return Watch(gpu=lambda: disturbed(device)) if device_of(device).meter == "GPU" else Watch()
