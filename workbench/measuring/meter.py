"""Energy of a stretch of work, in joules, or the reason why it is not known.

Follows Yang et al. (2023): the counter of the board where there is one, integrated power samples else, and no figure for a window
that the source cannot resolve.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from workbench.measuring.gauges import Counter, Gauge, NoGauge, PowerSamples, Unmeasurable
from workbench.runs.record import Energy

SHORTEST_GPU_SECONDS = 1.0  # the GPU's counter ticks about every 0.1 s, and its power may be an average over a second
SHORTEST_CPU_SECONDS = 0.05  # RAPL ticks about every millisecond
POWERCAP = Path("/sys/class/powercap")


@dataclass
class Window:
    """A measured stretch; `energy` is there once it is over."""

    energy: Energy = field(default_factory=lambda: Energy(None, "not measured: the window is still open"))


@dataclass(frozen=True)
class Meter:
    """A gauge for the device that does the work; `synchronize` waits until that device is idle, at both edges of a window."""

    gauge: Gauge
    synchronize: Callable[[], None] = lambda: None

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Measure the body of a `with`. A gauge that fails gives "not measured: reason" and never breaks the work."""
        window, gauge = Window(), self.gauge
        self.synchronize()
        began = time.perf_counter()
        try:
            begun = gauge.start()
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
    """The best meter for what runs on `device`: only that device is counted, however many there are.

    nvml, powercap  the NVML binding (default: the pynvml module) and the folder of RAPL's counters; tests put simulated ones there
    """
    device = torch.device(device)
    try:
        if device.type == "cuda":
            return Meter(_gpu_gauge(device, nvml), lambda: torch.cuda.synchronize(device))
        if device.type == "cpu":
            return Meter(_cpu_gauge(powercap))
        raise Unmeasurable(f"not measured: there is no energy counter for device {device.type}")
    except Exception as error:
        return Meter(NoGauge(_reason(error)))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Unmeasurable) else f"not measured: {error or type(error).__name__}"


def _gpu_gauge(device: torch.device, nvml: Any) -> Gauge:
    """The board's energy counter; where it has none, its instant power; where it has not that either, its averaged power."""
    if nvml is None:
        import pynvml as nvml  # loaded only where there is a GPU
    nvml.nvmlInit()
    handle = board(torch.cuda.get_device_properties(device), nvml)

    def counter() -> float:
        return nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3  # mJ

    def instant() -> float:
        (value,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(value.nvmlReturn)
        return value.value.uiVal / 1e3  # mW

    def average() -> float:
        return nvml.nvmlDeviceGetPowerUsage(handle) / 1e3  # mW

    failures = []
    for read in (counter, instant, average):
        try:
            read()
        except (nvml.NVMLError, AttributeError) as error:
            failures.append(f"{read.__name__}: {error}")
            continue
        if read is counter:
            return Counter("measured: GPU energy counter", [(counter, None)], SHORTEST_GPU_SECONDS)
        note = (
            "instant power" if read is instant else "power as the driver reports it, which may be a one-second average"
        )
        return PowerSamples(read, SHORTEST_GPU_SECONDS, note)
    raise Unmeasurable(f"not measured: this GPU reports neither energy nor power ({'; '.join(failures)})")


def board(properties: Any, nvml: Any) -> Any:
    """NVML's handle of the board that torch calls by another number (CUDA_VISIBLE_DEVICES renumbers): matched by UUID, else by PCI."""
    if "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        raise Unmeasurable(
            "not attributable: this is a slice of a shared GPU (MIG), and only the whole board is metered"
        )
    try:
        board = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
    except (nvml.NVMLError, AttributeError):
        pci = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        board = nvml.nvmlDeviceGetHandleByPciBusId(pci)
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(board)
    except (nvml.NVMLError, AttributeError):
        return board  # a board without MIG
    if current == nvml.NVML_DEVICE_MIG_ENABLE:
        raise Unmeasurable(
            "not attributable: this is a slice of a shared GPU (MIG), and only the whole board is metered"
        )
    return board


def _cpu_gauge(powercap: Path) -> Gauge:
    """RAPL's packages; their parts (cores, memory) are inside them and not counted again."""
    packages = [p for p in sorted(powercap.glob("intel-rapl:*")) if p.name.count(":") == 1 and _is_package(p)]
    if not packages:
        raise Unmeasurable("not measured: this machine shows no RAPL energy counter")
    try:
        parts = [
            (lambda p=p: int((p / "energy_uj").read_text()) / 1e6, int((p / "max_energy_range_uj").read_text()) / 1e6)
            for p in packages
        ]
        for read, _ in parts:
            read()
    except PermissionError as error:
        raise Unmeasurable(
            f"not measured: {error.filename} may be read by root only (chmod a+r makes it readable)"
        ) from error
    return Counter("CPU package (RAPL)", parts, SHORTEST_CPU_SECONDS, "the whole package, other programs included")


def _is_package(folder: Path) -> bool:
    try:
        return (folder / "name").read_text().startswith("package")
    except OSError:
        return False
