"""Reports of the GPU itself, on a made-up binding."""

import os
from types import SimpleNamespace

import pytest
import torch

from workbench.measuring.nvml import disturbed


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
