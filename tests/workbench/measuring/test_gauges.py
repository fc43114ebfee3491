"""Reports of the GPU itself, on a made-up binding."""

import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from workbench.measuring.meter import Counter, PowerSamples, Unmeasurable, disturbed


def counter(*values, wrap=None, shortest=1.0):
    readings = iter(values)
    return Counter("measured: GPU energy counter", [(lambda: next(readings), wrap)], shortest)


def test_a_counter_gives_the_difference():
    gauge = counter(100.0, 130.5)
    energy = gauge.stop(gauge.start(), 2.0)
    assert (energy.joules, energy.source) == (30.5, "measured: GPU energy counter")
    assert "2.00 s" in energy.detail


def test_a_wrapped_counter_goes_on_from_nothing():
    gauge = counter(262_000.0, 200.0, wrap=262_143.328)
    assert gauge.stop(gauge.start(), 5.0).joules == pytest.approx(343.328)


def test_a_counter_that_was_reset_gives_no_figure():
    gauge = counter(500.0, 3.0)
    with pytest.raises(Unmeasurable, match="not measured: the counter wrapped or was reset"):
        gauge.stop(gauge.start(), 5.0)


@pytest.mark.parametrize(("after", "seconds"), [(7.0, 0.6), (5.0, 3.0)])
def test_a_window_too_short_for_the_counter_is_below_resolution_and_never_zero(after, seconds):
    gauge = counter(5.0, after)
    energy = gauge.stop(gauge.start(), seconds)
    assert (energy.joules, energy.source) == (None, "below resolution")


def test_several_counters_add_up_each_with_its_own_wrap():
    a, b = iter([10.0, 14.0]), iter([99.0, 1.0])
    gauge = Counter(
        "CPU package (RAPL)", [(lambda: next(a), 1000.0), (lambda: next(b), 100.0)], 0.05
    )
    assert gauge.stop(gauge.start(), 1.0).joules == 6.0


def test_power_is_integrated_by_trapezoids_over_the_real_times_of_the_samples():
    began, times = time.perf_counter(), []

    def read():
        times.append(time.perf_counter() - began)
        return 100 + 50 * times[-1]

    gauge = PowerSamples(read, shortest=0.1)
    begun = gauge.start()
    time.sleep(0.3)
    energy = gauge.stop(begun, 0.3)
    span = times[-1] - times[0]
    assert energy.joules == pytest.approx(
        100 * span + 25 * (times[-1] ** 2 - times[0] ** 2), rel=0.05
    )
    assert energy.source == f"integrated from {len(times)} power samples"
    assert 3 <= len(times) <= 8


def test_a_short_window_of_power_is_below_resolution():
    gauge = PowerSamples(lambda: 100.0, shortest=1.0)
    assert gauge.stop(gauge.start(), 0.2).source == "below resolution"


def test_a_reading_that_fails_in_the_thread_is_raised_at_the_end_and_the_thread_is_over():
    answers = iter([100.0])

    def read():
        try:
            return next(answers)
        except StopIteration:
            raise OSError("the GPU fell off the bus") from None

    threads = threading.active_count()
    gauge = PowerSamples(read, shortest=0.0)
    begun = gauge.start()
    time.sleep(0.12)
    with pytest.raises(OSError, match="fell off the bus"):
        gauge.stop(begun, 1.2)
    assert threading.active_count() == threads


class NVML:
    """One board, which slows down for `reasons` and runs the processes `pids`."""

    NVMLError = ValueError
    NVML_DEVICE_MIG_ENABLE = 1
    (
        nvmlClocksEventReasonSwPowerCap,
        nvmlClocksEventReasonHwSlowdown,
        nvmlClocksEventReasonSwThermalSlowdown,
    ) = 4, 8, 32

    def __init__(self, reasons=0, pids=()):
        self.reasons, self.pids = reasons, pids

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetMigMode(self, board):
        return 0, 0

    def nvmlDeviceGetCurrentClocksEventReasons(self, board):
        return self.reasons

    def nvmlDeviceGetComputeRunningProcesses(self, board):
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (NVML(reasons=1, pids=[os.getpid()]), ""),  # 1: the GPU is idle
        (NVML(reasons=32), "the GPU slowed down because of its temperature or its power"),
        (NVML(reasons=4), "the GPU slowed down because of its temperature or its power"),
        (NVML(pids=[os.getpid(), -1]), "1 other process used the GPU"),
        (NVML(pids=[-1, -2]), "2 other processes used the GPU"),
    ],
)
def test_a_gpu_says_why_it_was_slow(nvml, words, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="7")
    )
    assert disturbed(torch.device("cuda"), nvml) == words
