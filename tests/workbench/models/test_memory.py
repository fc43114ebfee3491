import pytest
import torch

from decoders import InputError
from decoders.engine.weights.linear import COPIED_BYTES
from workbench.models import presets
from workbench.models.presets import CACHE_BYTES, available_bytes, fits, must_fit

CPU = torch.device("cpu")


def test_free_memory_of_the_cpu_is_what_the_machine_and_the_container_leave(monkeypatch, tmp_path):
    monkeypatch.setattr(presets, "CGROUP", tmp_path)
    machine = available_bytes(CPU)
    assert machine > 10**8
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.max").write_text("1000\n")
    assert available_bytes(CPU) == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(CPU) > 10**8


def test_a_gpu_is_asked_itself(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (5 * 10**9, 10**10))
    assert available_bytes(torch.device("cuda:1")) == 5 * 10**9


def test_weights_must_leave_room_for_the_caches(monkeypatch):
    monkeypatch.setattr(presets, "available_bytes", lambda device: 10 * 10**9)
    most = 10 * 10**9 - CACHE_BYTES
    assert fits(most, torch.device("xpu"))
    assert not fits(most + 1, torch.device("xpu"))
    assert fits(most - 2 * COPIED_BYTES, CPU)  # small models are held twice
    assert not fits(most - 2 * COPIED_BYTES + 1, CPU)
    with pytest.raises(
        InputError,
        match=r"big does not fit: its weights take 26\.0 GB in bfloat16 and cpu has 10\.0 GB free",
    ):
        must_fit("big", 26 * 10**9, CPU, torch.bfloat16)


def test_a_device_that_does_not_tell_is_tried():
    assert available_bytes(torch.device("mps")) is None
    assert fits(10**15, torch.device("mps"))
