"""Reports of the GPU itself, on a made-up binding."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from workbench.measuring.meter import Gauge, Meter, Watch, disturbed, open_meter
from workbench.runs.record import Load


class NVML:
    """A simulated pynvml: boards by PCI address, each with the readings it has."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self, *boards):
        self.boards, self.asked = boards, []

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByPciBusId(self, address):
        return next(board for board in self.boards if board["pci"] == address)

    def nvmlDeviceGetMigMode(self, board):
        return [self._read(board, "mig"), 0]

    def nvmlDeviceGetTotalEnergyConsumption(self, board):
        return self._read(board, "energy")()

    def _read(self, board, name):
        self.asked.append((board["name"], name))
        if name not in board:
            raise self.NVMLError("Not Supported")
        return board[name]


def board(number, **readings):
    return {"name": f"GPU-{number}", "pci": f"00000000:{number:02x}:00.0", **readings}


def steps(*millijoules):
    """A counter that stands still between its ticks."""
    readings = iter(millijoules)
    return lambda: next(readings)


@pytest.fixture
def gpu(monkeypatch):
    """A torch that has one visible GPU, board 7; device-wide waiting is counted."""
    waits = []
    properties = SimpleNamespace(pci_domain_id=0, pci_bus_id=7, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return SimpleNamespace(waits=waits)


def measure(meter, seconds):
    """The energy of a window that takes so long by its clock."""
    return meter.gauge.stop(meter.gauge.start(), seconds)


def test_the_counter_of_the_board_in_use_is_read_among_several(gpu):
    others = [board(n, energy=lambda: 0 / 0) for n in (1, 2)]
    nvml = NVML(*others, board(7, energy=steps(0, 5_000, 47_500, 0, 0)))
    meter = open_meter("cuda:0", nvml)
    energy = measure(meter, 2.5)
    assert (energy.joules, energy.source) == (42.5, "measured: GPU energy counter")
    assert {asked for asked, _ in nvml.asked} == {"GPU-7"}
    with meter.window():
        assert gpu.waits == [torch.device("cuda:0")]
    assert gpu.waits == [torch.device("cuda:0")] * 2


@pytest.mark.parametrize(("last", "seconds"), [(900, 0.4), (0, 2.0)])
def test_a_window_shorter_than_the_ticks_is_below_resolution(gpu, last, seconds):
    energy = measure(open_meter("cuda", NVML(board(7, energy=steps(0, 0, last)))), seconds)
    assert (energy.joules, energy.source) == (None, "below resolution")


def test_a_board_that_reports_nothing_says_so(gpu):
    source = open_meter("cuda", NVML(board(7))).gauge.source
    assert source.startswith("not measured: this GPU has no energy counter (Not Supported)")


@pytest.mark.parametrize("visible", [None, "MIG-1234"])
def test_a_slice_of_a_shared_board_is_not_attributable(gpu, monkeypatch, visible):
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    mig = 0 if visible else NVML.NVML_DEVICE_MIG_ENABLE
    meter = open_meter("cuda", NVML(board(7, energy=lambda: 1, mig=mig)))
    assert meter.gauge.source.startswith("not attributable: ")


def test_without_the_driver_the_reason_is_given(gpu):
    nvml = NVML()
    nvml.nvmlInit = lambda: (_ for _ in ()).throw(NVML.NVMLError("NVML Shared Library Not Found"))
    assert open_meter("cuda", nvml).gauge == Gauge("not measured: NVML Shared Library Not Found")


def rapl(folder, **packages):
    for name, (label, energy, most) in packages.items():
        path = folder / name.replace("_", ":").replace("rapl", "intel-rapl")
        path.mkdir()
        for file, text in (("name", label), ("energy_uj", energy), ("max_energy_range_uj", most)):
            (path / file).write_text(f"{text}\n")
    return folder


def test_the_packages_of_the_cpu_are_counted_once_and_wrap(tmp_path):
    most = 10_000_000
    packages = {"rapl_0": ("package-0", 1_000_000, most), "rapl_1": ("package-1", 9_000_000, most)}
    others = {"rapl_0_0": ("core", 1_000_000, most), "rapl_2": ("psys", 1_000_000, most)}
    rapl(tmp_path, **packages, **others)
    meter = open_meter("cpu", powercap=tmp_path)
    with meter.window() as window:
        time.sleep(0.06)
        (tmp_path / "intel-rapl:0/energy_uj").write_text("3500000")
        (tmp_path / "intel-rapl:1/energy_uj").write_text("500000")
        (tmp_path / "intel-rapl:2/energy_uj").write_text("9000000")
    assert (window.energy.joules, window.energy.source) == (4.0, "CPU package (RAPL)")
    assert window.energy.detail.endswith("other programs included; memory has no counter here")


def test_memory_is_added_where_it_has_a_counter(tmp_path):
    """A package's counter does not hold it, yet the figure was called that of the whole package."""
    rapl(
        tmp_path,
        rapl_0=("package-0", 1_000_000, 10_000_000),
        rapl_0_0=("core", 1_000_000, 10_000_000),
        rapl_0_1=("dram", 4_000_000, 5_000_000),
    )
    with open_meter("cpu", powercap=tmp_path).window() as window:
        time.sleep(0.06)
        (tmp_path / "intel-rapl:0/energy_uj").write_text("3500000")
        (tmp_path / "intel-rapl:0:1/energy_uj").write_text("250000")
    assert (window.energy.joules, window.energy.source) == (3.75, "CPU package and memory (RAPL)")
    assert window.energy.detail.endswith("the whole package and memory, other programs included")


@pytest.mark.parametrize("most", ["", None, 0])
def test_a_counter_that_does_not_tell_where_it_wraps_counts_until_it_does(tmp_path, most):
    """Nothing at all was measured."""
    rapl(tmp_path, rapl_0=("package-0", 1_000_000, most))
    if most is None:
        (tmp_path / "intel-rapl:0/max_energy_range_uj").unlink()
    for after, joules in (("3500000", 2.5), ("500000", None)):
        with open_meter("cpu", powercap=tmp_path).window() as window:
            time.sleep(0.06)
            (tmp_path / "intel-rapl:0/energy_uj").write_text(after)
        assert window.energy.joules == joules
    assert window.energy.source == "not measured: the counter wrapped or was reset in between"


def test_a_device_without_a_counter_and_one_that_keeps_it_from_us_say_so(tmp_path, monkeypatch):
    whys = {"cpu": "this machine shows no RAPL energy counter",
            "mps": "there is no energy counter for device mps"}  # fmt: skip
    for device, why in whys.items():
        assert open_meter(device, powercap=tmp_path).gauge == Gauge(f"not measured: {why}")
    rapl(tmp_path, rapl_0=("package-0", 1, 10))
    read = Path.read_text

    def guarded(path, *args):
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path, *args)

    monkeypatch.setattr(Path, "read_text", guarded)
    source = open_meter("cpu", powercap=tmp_path).gauge.source
    assert source.startswith("not measured: ")
    assert "root only" in source


@pytest.mark.parametrize("edge", ["start", "stop"])
def test_a_gauge_that_breaks_never_breaks_the_work(edge):
    def fail(*args):
        raise OSError("gone")

    broken, done = type("Broken", (Gauge,), {edge: fail}), False
    with Meter(broken("not measured: nothing")).window() as window:
        done = True
    assert done
    assert window.energy.source == "not measured: gone"
    assert window.energy.joules is None


class SharedBoard(NVML):
    """One board, which runs the processes `pids`."""

    def __init__(self, *pids):
        super().__init__(board(7))
        self.pids = pids

    def nvmlDeviceGetComputeRunningProcesses(self, board):
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.mark.parametrize(("nvml", "words"), [
    (SharedBoard(os.getpid()), ""),
    (SharedBoard(os.getpid(), -1), "1 other process used the GPU"),
    (SharedBoard(-1, -2), "2 other processes used the GPU"),
])  # fmt: skip
def test_a_gpu_says_who_else_used_it(gpu, nvml, words):
    assert disturbed(torch.device("cuda"), nvml) == words


def test_each_counter_is_a_share_of_the_lap(tmp_path):
    waits = tmp_path / "cpu"
    waits.write_text("some avg10=0.00 total=500000\nfull avg10=0.00 total=0\n")
    watch = Watch(waits, lambda: "")
    _, waited = watch.read()
    found = watch.load((0.0, 0.0), (2.0, waited), seconds=2.0, computed=1.0)
    assert found == Load(cpu_share=0.5, pressure=0.25, gpu="")


def test_a_machine_that_shows_no_counters_breaks_no_work(tmp_path):
    def fails():
        raise OSError

    watch = Watch(tmp_path / "none", fails)
    found = watch.load(watch.read(), watch.read(), 1.0, 1.0)
    assert found == Load(cpu_share=1.0)


def test_an_old_binding_without_the_functions_is_no_error(gpu):
    class Old(NVML):
        nvmlDeviceGetTotalEnergyConsumption = property()
        nvmlDeviceGetMigMode = property()

    source = open_meter("cuda", Old(board(7))).gauge.source
    assert source.startswith("not measured: this GPU has no energy counter")
