"""What is metered of the server that a bench puts load on."""

import pytest
import torch

from workbench.engines.addresses import Engine
from workbench.engines.starters import Starter
from workbench.experiments import engine_bench
from workbench.experiments.engine_bench import EngineBench
from workbench.experiments.engine_cells import EngineUnit

NEAR = Engine("fast", "http://localhost:8000")


def metered(place, gpus: int, device: str, monkeypatch) -> EngineUnit:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    return EngineUnit((), (), 0, (), (), place, "own", device)


@pytest.mark.parametrize(
    ("place", "gpus", "says"),
    [
        (Engine("fast", "http://host.example"), 0, "the server runs on another machine"),
        (NEAR, 1, "whether the server uses a GPU is not known"),
        (Starter("fast", ()), 1, "whether the server uses a GPU is not known"),
        (Starter("fast", (), gpus=1), 2, "which of 2 GPUs it uses is not known"),
        (Starter("fast", (), gpus=2), 2, "uses several GPUs"),
    ],
)
def test_energy_that_cannot_be_the_servers_is_not_measured(place, gpus, says, monkeypatch):
    """A server on CPUs, beside a GPU, got the joules of the idle GPU."""
    unit = metered(place, gpus, "auto", monkeypatch)
    with EngineBench()._meter(unit).window() as window:
        pass
    assert window.energy.joules is None
    assert says in window.energy.source


@pytest.mark.parametrize(
    ("place", "gpus", "device", "meters"),
    [
        (NEAR, 0, "auto", "cpu"),
        (Starter("fast", ()), 0, "auto", "cpu"),
        (Starter("fast", (), gpus=0), 2, "cuda:1", "cpu"),
        (Starter("fast", (), gpus=1), 1, "auto", "cuda"),
        (Starter("fast", (), gpus=1), 2, "cuda:1", "cuda:1"),
    ],
)
def test_what_is_declared_is_metered(place, gpus, device, meters, monkeypatch):
    monkeypatch.setattr(engine_bench, "open_meter", lambda device: device)
    assert EngineBench()._meter(metered(place, gpus, device, monkeypatch)) == meters
