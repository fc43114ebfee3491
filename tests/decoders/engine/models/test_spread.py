"""Models whose layers are on several devices, one of them made up.

Accelerate's hooks, which go into the twin, move the inputs of a layer."""

import copy

import pytest
import torch

from decoders import ModelPair, catalog, generate
from tests import zoo
from tests.elsewhere import FAR, TwoDevices, put_far
from tests.models import by_transformers
from tests.pairwise import EVERYWHERE

hooks = pytest.importorskip("accelerate.hooks")
PROMPTS = [[5, 6, 7], list(range(10, 31)), [3]]
NEAR = torch.device("cpu")


class Placed(hooks.AlignDevicesHook):
    def init_hook(self, module):
        if self.execution_device == FAR:
            put_far(module)
        return module


def spread(model):
    """The second half of the layers and the head FAR, as accelerate would dispatch them."""
    base = model.model
    half = len(base.layers) // 2
    for parts, device in (
        (base.layers[:half], NEAR),
        ((*base.layers[half:], base.norm, model.lm_head), FAR),
    ):
        for part in parts:
            hooks.add_hook_to_module(part, Placed(execution_device=device))
    hooks.add_hook_to_module(model, Placed(execution_device=NEAR, io_same_device=True))
    model.hf_device_map = {"model.layers.0": 0, "model.layers.1": 1}
    return model


@pytest.fixture
def two_devices():
    with TwoDevices():
        yield


@pytest.mark.parametrize(
    "name", ["llama", "gemma3_text", "llama4_text"] if EVERYWHERE else ["gemma3_text"]
)
def test_each_layer_has_its_rows_where_it_is(name, two_devices):
    """Such models ran one request at a time.

    Hooks copied masks without their rules, and would have copied the arena for every layer; the
    biases of trees stayed on the CPU, which fails on any GPU whose attention takes one request
    after another."""
    one, draft = zoo.build_pair(name)
    pair = ModelPair(spread(copy.deepcopy(one)), draft)
    assert not pair.plain
    arenas = pair.packed["target"].arenas().each
    assert [{tensor.device for tensor in (*arena.keys, *arena.values)} for arena in arenas] in (
        [{NEAR}, {FAR}],
        [{FAR}, {NEAR}],
    )
    together = ModelPair(one, draft, passes="plain")
    for method in (
        catalog["speculative"](draft_length=3),
        catalog["specinfer"](expansion=(2, 2, 1)),
        catalog["dsbd"](),
    ):
        results = generate(
            pair, PROMPTS, method, max_new_tokens=24, temperature=0, ignore_eos=True,
            prefill_chunk=8,
        )  # fmt: skip
        if method.law == "target":
            assert [r.tokens for r in results] == [by_transformers(one, p, 24) for p in PROMPTS]
        assert [
            r.tokens
            for r in generate(together, PROMPTS, method, max_new_tokens=24, seed=3, ignore_eos=True)
        ] == [
            r.tokens
            for r in generate(pair, PROMPTS, method, max_new_tokens=24, seed=3, ignore_eos=True)
        ]
