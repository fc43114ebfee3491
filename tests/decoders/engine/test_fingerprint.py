"""Which changes of tensors a fingerprint sees, and what they cost.

Trials are not repeated for the same model on the same machine, if they were passed alone.
"""

import gc
import weakref

import numpy as np
import pytest
import torch
import torchao
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from decoders import ModelPair, generate
from decoders.engine.fingerprint import Fingerprint, alike, numbers, span, trials_of
from decoders.engine.loading import admission
from decoders.engine.loading.admission import agrees_with_plain_pass
from decoders.engine.lowering.program import Programs
from tests.models import build, halved

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
    for tensor in (view(whole), whole.double() * torch.nan):
        assert alike(numbers([tensor]), numbers([tensor]))


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
    assert kept.change() == "weights"


def test_quantised_weights_are_read_as_they_are_stored(tmp_path):
    """`load_pair("smollm2", quantization="int8")` ended in a traceback: such weights have no bytes
    that can be read as numbers, so there are no trials of them."""
    layer = nn.Sequential(nn.Linear(64, 64))
    plain = Fingerprint(layer)
    torchao.quantize_(layer, torchao.quantization.Int8WeightOnlyConfig())
    assert plain.change() == "form"
    quantised = Fingerprint(layer)
    assert not quantised.change()
    layer[0].weight.qdata.add_(1)
    assert quantised.change() == "weights"
    model = small()
    torchao.quantize_(model, torchao.quantization.Int8WeightOnlyConfig())
    assert trials_of(model, "program", tmp_path) is None


def test_a_write_that_autograd_does_not_see_is_other_weights_and_another_layer_another_form():
    model = build(dtype=torch.float32, num_hidden_layers=2)
    fingerprint, before = Fingerprint(model), numbers(list(model.parameters()))
    assert not fingerprint.change()
    model.model.layers[0].mlp.up_proj.weight.data.add_(0.1)
    assert fingerprint.change() == "weights"
    assert not alike(numbers(list(model.parameters())), before)
    model.model.layers.append(model.model.layers[0])
    assert fingerprint.change() == "form"


@pytest.fixture
def made(monkeypatch):
    """The trials that are made: whether passes agree, and programs."""
    found = []

    def agrees(model):
        found.append("passes")
        agrees_with_plain_pass(model)

    agree = Programs._must_agree
    monkeypatch.setattr(admission, "agrees_with_plain_pass", agrees)
    monkeypatch.setattr(Programs, "_must_agree", lambda *a: found.append("program") or agree(*a))
    return found


def small():
    """A model whose passes have a program."""
    return halved(build(dtype=torch.float32))


def pair(model, folder, **options):
    return ModelPair(model, None, trials=trials_of(model, "program", folder), **options)


def tokens(pair):
    return generate(pair, [3, 5, 7], "greedy", max_new_tokens=12).tokens


def test_a_second_start_tries_nothing_again_and_writes_the_same(tmp_path, made):
    model = small()
    first = tokens(pair(model, tmp_path / "new"))
    assert {*made} == {"passes", "program"}
    made.clear()
    second = pair(small(), tmp_path / "new")
    assert tokens(second) == first
    assert not made


@pytest.mark.parametrize("change", ["weights", "config", "code", "variable", "passes"])
def test_anything_that_decides_how_a_model_computes_makes_a_new_trial(
    tmp_path, made, monkeypatch, change
):
    model = small()
    pair(model, tmp_path)
    made.clear()
    if change == "weights":
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight[1, 2] += 0.01
    elif change == "config":
        model.config.rms_norm_eps *= 2
    elif change == "code":
        kind = type(model.model.norm)
        monkeypatch.setattr(kind, "forward", lambda self, x: x * self.weight)
    elif change == "variable":
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    passes = "plain" if change == "passes" else "program"
    ModelPair(model, None, passes=passes, trials=trials_of(model, passes, tmp_path))
    assert "passes" in made


def test_changed_weights_are_tried_without_what_is_known(tmp_path, made):
    model = small()
    tokens(pair(model, tmp_path))
    known = pair(model, tmp_path)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight.mul_(1.5)
    made.clear()
    tokens(known)
    assert "program" in made


def test_a_model_with_a_hook_is_tried_each_time(tmp_path):
    model = small()
    model.model.norm.register_forward_hook(lambda *_: None)
    assert trials_of(model, "program", tmp_path) is None
