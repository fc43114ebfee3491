"""What a stretch of work took of the machine: its energy, and the other work that disturbed it.

Energy is in joules, or it is the reason why they are not known. The source is the counter of the
board if it has one, else integrated power samples; a window that the source cannot resolve has no
figure. The GPU that torch uses is read as NVML knows it: its energy, and the causes that slow it
down. Disturbances are read from the counters of the operating system and the GPU.

Source:
    Yang et al. 2023, Part-time power measurements: nvidia-smi's lack of attention (arXiv
        2312.02741).
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from decoders.devices import device_of
from workbench.runs.record import Energy, Load
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

    def start(self) -> "PowerReadings":
        return PowerReadings(self.read)

    def stop(self, begun: "PowerReadings", seconds: float) -> Energy:
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


class PowerReadings:
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


# The GPU's counter ticks about every 0.1 s, and its power may be an average over a second.
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
    """The first gauge that the board has: energy counter, instant power, averaged power."""
    nvml, handle = board(device, nvml)

    def counter() -> float:
        return nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # mJ

    def instant() -> float:
        (value,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(value.nvmlReturn)
        return value.value.uiVal / 1e3  # mW

    def average() -> float:
        return nvml.nvmlDeviceGetPowerUsage(handle) / 1e3  # mW

    average_note = "power as the driver reports it, which may be a one-second average"
    gauges: dict[Callable[[], float], Gauge] = {
        counter: Counter("measured: GPU energy counter", [(counter, None)], SHORTEST_GPU_SECONDS),
        instant: PowerSamples(instant, SHORTEST_GPU_SECONDS, "instant power"),
        average: PowerSamples(average, SHORTEST_GPU_SECONDS, average_note),
    }
    failures = []
    for read, gauge in gauges.items():
        try:
            read()
            return gauge
        except (nvml.NVMLError, AttributeError) as error:
            failures.append(f"{read.__name__}: {error}")
    raise Unmeasurable(
        f"not measured: this GPU reports neither energy nor power ({'; '.join(failures)})"
    )


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
