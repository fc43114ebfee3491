"""What a stretch of work took of the machine: its energy, and the other work that disturbed it.

Energy is in joules, or it is the reason why they are not known. The source is a counter; a window
that it cannot resolve has no figure. The GPU that torch uses is read as NVML knows it: its energy,
and the causes that slow it down. Disturbances are read from the counters of the operating system
and the GPU.

Source:
    Yang et al. 2023, Part-time power measurements: nvidia-smi's lack of attention (arXiv
        2312.02741).
"""

import os
import time
from collections.abc import Callable, Iterator
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
Gauge = Counter | NoGauge


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
            begun: Any = gauge.start()
        except Exception as error:
            gauge, begun = NoGauge(_reason(error)), None
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
        return Meter(NoGauge(_reason(error)))


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
    return Counter("measured: GPU energy counter", [(counter, None)], SHORTEST_GPU_SECONDS)


def _cpu_gauge(powercap: Path) -> Gauge:
    """RAPL's packages and their memory, which is the only part that a package does not contain."""
    packages = [p for p in _zones(powercap, 1) if _label(p).startswith("package")]
    if not packages:
        raise Unmeasurable("not measured: this machine shows no RAPL energy counter")
    memory = [p for p in _zones(powercap, 2) if _label(p) == "dram"]
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
    return Counter(
        f"CPU {counted} (RAPL)",
        parts,
        SHORTEST_CPU_SECONDS,
        f"the whole {counted}, other programs included{without}",
    )


def _zones(powercap: Path, depth: int) -> list[Path]:
    return [p for p in sorted(powercap.glob("intel-rapl:*")) if p.name.count(":") == depth]


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


TICKS = os.sysconf("SC_CLK_TCK")


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
    """

    wall: float
    throttled: float | None
    stolen: float | None
    pressure: float | None


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
            *map(_tried, (self._throttled, self._stolen, self._pressure)),
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
            throttled=_per_second(before.throttled, after.throttled, wall),
            stolen=_per_second(before.stolen, after.stolen, wall * (os.cpu_count() or 1)),
            pressure=_per_second(before.pressure, after.pressure, wall),
            gpu=_tried(self.sources.gpu),
        )

    def missing(self) -> list[str]:
        """The counters that cannot be read here, by their names in `Load`."""
        now = self.read()
        names = ("throttled", "stolen", "pressure")
        return [name for name in names if getattr(now, name) is None]

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


def watch(device: torch.device | str) -> Watch:
    device = torch.device(device)
    return (
        Watch(Sources(gpu=lambda: disturbed(device)))
        if device_of(device).meter == "GPU"
        else Watch()
    )


def _tried(read: Callable[[], Any]) -> Any:
    """The counter, or None if it cannot be read: no counter may break the work."""
    try:
        return read()
    except Exception:
        return None


def _per_second(before: float | None, after: float | None, seconds: float) -> float | None:
    return None if before is None or after is None else max(0.0, after - before) / seconds
