"""Which changes of tensors a fingerprint sees, and what they cost."""

import gc
import weakref

import numpy as np
import pytest
import torch
import torchao
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from decoders.engine.models.fingerprint import Fingerprint, numbers, span
from tests.models import build

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int8,
    torch.uint8, torch.int64, torch.bool, torch.complex64,
]  # fmt: skip


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_other_weights_are_read_at_places_all_over_them(rows, width):
    weight = torch.arange(rows * width).view(rows, width)
    read = weight.as_strided(*span(weight)).flatten()
    assert min(128, rows * width) <= len(read) <= 640
    gaps = torch.cat([torch.tensor([0]), read, torch.tensor([rows * width])]).diff()
    assert gaps.max() <= max(32, rows * width // 3)
    if rows > 64 and width > 64:
        assert len((read % width).unique()) >= 32


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "view",
    [
        lambda t: t, lambda t: t.t(), lambda t: t[:, ::3], lambda t: t[2:5, 1:4],
        lambda t: t[:1].expand(7, -1), lambda t: t[:0], lambda t: t[3, 4], lambda t: t[None, 2:],
    ],
    ids=["whole", "turned", "columns", "a part", "repeated", "empty", "a scalar", "more axes"],
)  # fmt: skip
def test_tensors_of_any_kind_and_layout(dtype, view):
    whole = torch.arange(400).view(20, 20).to(dtype)
    tensor = view(whole)
    assert numbers([tensor]).alike(numbers([tensor]))


def test_numbers_that_are_none_are_equal_to_themselves():
    weight = torch.full((4, 5), torch.nan)
    assert numbers([weight]).alike(numbers([weight]))


def test_what_is_kept_holds_no_weight_in_memory():
    """A model that is moved to another device, or loads other weights, needs the room."""
    numbers_of_weight = np.ones((30, 30), np.float32)
    memory = weakref.ref(numbers_of_weight)
    layer = nn.Linear(30, 30)
    layer.weight = nn.Parameter(torch.from_numpy(numbers_of_weight))
    kept = Fingerprint(layer)
    del numbers_of_weight
    assert memory() is not None
    layer.weight.data = torch.ones(30, 30)
    gc.collect()
    assert memory() is None
    assert not Fingerprint(layer).weights.alike(kept.weights)


def test_quantised_weights_are_read_as_they_are_stored():
    layer = nn.Sequential(nn.Linear(64, 64))
    plain = Fingerprint(layer)
    torchao.quantize_(layer, torchao.quantization.Int8WeightOnlyConfig())
    quantised = Fingerprint(layer)
    assert not quantised.alike(plain)
    assert quantised.alike(Fingerprint(layer))
    assert quantised.weights.alike(Fingerprint(layer).weights)


def test_what_lasts_is_seen_at_a_glance():
    """Another fingerprint took 3 to 6% of a call of 64 tokens."""
    model = build(dtype=torch.float32, num_hidden_layers=1)
    fingerprint = Fingerprint(model)
    assert fingerprint.lasts()
    model.model.layers[0].mlp.up_proj.weight.data.add_(0.1)
    assert not fingerprint.lasts()
    assert Fingerprint(model).lasts()
