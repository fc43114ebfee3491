"""What one launch carries out, and what CUDA graphs record.

The stand-in for CUDA graphs takes the CPU for a GPU."""

import logging
import random

import pytest
import torch

from decoders.engine.lowering.groups import grouped
from decoders.engine.lowering.lower import Lowering
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests import zoo
from tests.decoders.engine.test_graphs import kernels, stand_in  # noqa: F401 - a fixture
from tests.models import FAMILIES, build

# At most so many launches a layer.
MOST = {"llama": 9, "mistral": 9, "phi3": 9, "qwen3": 11, "olmo2": 11, "gemma2": 11}
DTYPES = torch.float32, torch.bfloat16, torch.float16


def model_of(family, dtype, layers=2, **changes):
    changes["num_hidden_layers"] = layers
    if family in FAMILIES:
        if family == "gemma2":
            changes["layer_types"] = ["full_attention"] * layers
        return build(family, dtype, **changes)
    return zoo.build_pair(family, **changes)[0].to(dtype)


def lowering_of(packed):
    with torch.inference_mode():
        return Lowering(
            *packed.forward.programs._recording(()), {}, packed.dtype, torch.device("cpu")
        )


@pytest.mark.parametrize(("family", "dtype"), [*zip(MOST, DTYPES * 2, strict=True)], ids=str)
def test_a_layer_is_few_launches(kernels, family, dtype):  # noqa: F811
    """In bfloat16, and with Phi-3's or Gemma 2's layers, nothing was lowered."""
    lengths = []
    for layers in (1, 2):
        lowering = lowering_of(PackedModel(model_of(family, dtype, layers), "target"))
        groups = grouped(lowering.instructions, [rows.number for rows in lowering.answers])
        lengths.append(len(groups))
        known = {*lowering.given}
        for group in groups:
            assert known.issuperset(group.operands)
            known.update(group.results)
    assert lengths[1] - lengths[0] <= MOST[family]
    assert lengths[0] <= MOST[family] + 5  # tokens, angles, the last norm, rows and logits


def passes(packed, turns=6, seed=0):
    """Yield inputs of passes over two requests: prompts, then trees."""
    draw, engine = random.Random(seed), PackedPasses(packed)
    trees = [TokenTree(draw.choices(range(60), k=k)) for k in (30, 3)]
    for tree in trees:
        engine.admit(tree, 60)
    for turn in range(turns):
        wants = []
        for tree in trees:
            tips = [tree.trunk[-1]]
            for _ in range(draw.randrange(1, 6) if turn else 0):
                tips.append(tree.add(draw.choice(tips), draw.randrange(60)))
            wants.append((tree, tips[1:] or tips))
        yield engine.pack(engine.feeds(wants, None))._asdict()
        for tree in trees:
            if tree.tail:
                tree.keep([draw.choice(list(tree.tail))])
        engine.arenas.sync([(engine.caches[t], t) for t in trees])


def test_what_has_no_program_is_recorded_module_by_module(kernels, caplog):  # noqa: F811
    """And says so."""
    caplog.set_level(logging.INFO, "decoders")
    packed = PackedModel(build("opt", torch.float32), "target")
    with torch.inference_mode():
        assert packed.forward.programs.serving(1) is None
    assert "graphs of its modules (no instruction does layer_norm" in packed.engine_name
    assert "recorded module by module, which takes longer" in caplog.text


def test_the_first_pass_of_a_shape_is_its_replay(kernels):  # noqa: F811
    """It returned the plain pass, whose last bits may be others than those of all later passes."""

    def marked(run):
        return stand_in(lambda: tuple(answer + 1e-6 for answer in run()))

    packed = PackedModel(build(), "target")
    packed.forward.record = marked
    engine, tree = packed.engine(), TokenTree([1, 2, 3])
    engine.admit(tree, 3)
    inputs = engine.pack(engine.feeds([(tree, tree.trunk[-1:])], None))
    with torch.inference_mode():
        plain = packed.plain(**inputs._asdict(), features=())[0]
        first, second = (packed(inputs)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, plain)
