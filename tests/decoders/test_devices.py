"""Questions about a device are asked in one place."""

import re
from pathlib import Path

import pytest
import torch

from decoders.devices import all_devices, device_of

ROOT = Path(__file__).parents[2]
KIND = re.compile(
    r"\.type\s*[!=]=\s*[\"'](cpu|cuda|mps|xpu)|\.is_cuda|\.is_cpu|torch\.cuda\.(is_available|get_device|synchronize|mem)"
)
# These ask: of tensors that have no data, of the board itself, and of graphs, which only CUDA has.
ASKED = {"decoders/devices.py", "workbench/measuring/meter.py"}


def test_no_other_file_asks_what_kind_of_device_it_is():
    """About thirty places asked, so a new kind of device would have taken as many edits."""
    files = [f for top in ("decoders", "workbench") for f in (ROOT / top).rglob("*.py")]
    found = {str(f.relative_to(ROOT)) for f in files if KIND.search(f.read_text())}
    assert found - ASKED == set()


def test_the_host():
    host = device_of("cpu")
    assert (host.on_host, host.meter, host.default_dtype) == (True, "CPU", torch.float32)
    assert not host.has_kernels(torch.float32)
    assert all_devices()[-1] == "cpu"


@pytest.mark.parametrize(
    ("capability", "dtype", "kernels"),
    [((9, 0), torch.bfloat16, True), ((7, 5), torch.float16, False)],
)
def test_a_gpu(monkeypatch, capability, dtype, kernels):
    """A T4 or V100 computes bfloat16 very slowly, and was given it."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda place: capability)
    gpu = device_of("cuda:1")
    assert (gpu.on_host, gpu.meter, gpu.default_dtype) == (False, "GPU", dtype)
    assert gpu.has_kernels(torch.float16) == kernels
    assert not gpu.has_kernels(torch.float64)
