"""Energy of a stretch of work, in joules, or the reason why it is not known.

The source is the counter of the board if it has one, else integrated power samples; a window that
the source cannot resolve has no figure.

Source:
    Yang et al. 2023, Part-time power measurements: nvidia-smi's lack of attention (arXiv
        2312.02741).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from decoders.devices import device_of
from workbench.measuring.gauges import Counter, Gauge, NoGauge, PowerSamples, Unmeasurable, board
from workbench.runs.record import Energy

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
