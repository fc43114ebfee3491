"""Programs of Triton's kernels: the numbers of plain passes, and the same bits in any pass.

Without a CUDA device the kernels are interpreted, which knows no products in bfloat16, and compiled
for three cards."""

import itertools
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from decoders.engine.models.packed import PackedModel, launches
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests.decoders.engine.attention.test_kernels import (  # noqa: F401 - a fixture
    POINTERS,
    SHARED,
    compiled,
    interpreter,
)
from tests.decoders.engine.lowering.test_groups import MOST, lowering_of, model_of, passes
from tests.decoders.engine.test_graphs import with_kernels
from tests.models import build
from tests.pairwise import EVERYWHERE, part

pytestmark = pytest.mark.skipif(not find_spec("triton"), reason="Triton is not for this platform")
ERROR = {torch.float32: 1e-5, torch.float16: 5e-3}


def both(model):
    """A model on a stand-in for a GPU, and its program of launches."""
    with_kernels(pytest.MonkeyPatch())
    packed = PackedModel(model, "target")
    return packed, launches(lowering_of(packed))


@torch.inference_mode()
def largest_error(family, dtype):
    packed, by_triton = both(model_of(family, dtype))
    errors = []
    for inputs in passes(packed, turns=2):
        (ours,), (plain,) = by_triton(*inputs.values()), packed.plain(**inputs, features=())
        errors.append(float((ours.double() - plain.double()).norm() / plain.double().norm()))
    return max(errors)


# The other layers are made of the same instructions.
SOME = MOST if EVERYWHERE else ("gemma2",)


@pytest.mark.parametrize(("family", "dtype"), [*zip(SOME, itertools.cycle(ERROR))], ids=str)
def test_launches_give_the_numbers_of_plain_passes(interpreter, family, dtype):  # noqa: F811
    """In prompts and trees of two requests."""
    assert interpreter.submit(largest_error, family, dtype).result() < ERROR[dtype]


@torch.inference_mode()
def rows_of_one_token(dtype):
    """The logits of a text's last token, by the pass that fed it."""
    sizes = {"num_hidden_layers": 1, "max_position_embeddings": 512}
    packed, program = both(build("qwen3", dtype, **sizes))
    text, rows = [(7 * i + 3) % 60 for i in range(PASSES[0][0])], {}
    for last, others, wrong in PASSES:
        engine = PackedPasses(packed)
        begin = len(text) - last if wrong else len(text)
        trees = [TokenTree(text[:begin])] + [TokenTree([i + 1]) for i in range(others)]
        for tree in trees:
            engine.admit(tree, 2 * len(text))
        behind = trees[0].trunk[: len(text) - last]
        wants = [(trees[0], behind[-1:])] if behind else []
        if wants:
            program(*engine.pack(engine.feeds(wants, None)))
        nodes = trees[0].trunk[-1:]
        for token in text[begin:]:
            beside = [trees[0].add(nodes[-1], (token + i) % 60) for i in range(1, 1 + wrong)]
            nodes += [*beside, trees[0].add(nodes[-1], token)]
        wants = [*((tree, tree.trunk[-1:]) for tree in trees[1:]), (trees[0], nodes[1:] or nodes)]
        rows[last, others, wrong] = program(*engine.pack(engine.feeds(wants, None)))[0][-1]
    return rows


# How many of the last tokens one pass fed, beside how many other requests, and after how many other
# guesses each of them stood in a tree.
PASSES = [(33, 0, 0), (1, 4, 0), (5, 0, 2)]
if EVERYWHERE:
    PASSES = [(n, 0, 0) for n in (80, 33, 16, 1)]
    PASSES += [(1, 4, 0), (5, 20, 0), (5, 0, 2), (16, 3, 1), (1, 0, 7)]


def adds_up_alike() -> bool:
    """Whether a row of numpy's product has the same bits alone, which its BLAS decides."""
    few, weights = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)
    return all((few[:n] @ weights == (few @ weights)[:n]).all() for n in (1, 5, 16))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ERROR, ids=str)
def test_a_row_has_the_same_bits_in_any_pass(interpreter, dtype):  # noqa: F811
    """Among few and many tokens, in a tree, and beside other requests."""
    if dtype == torch.float32 and not adds_up_alike():
        pytest.skip("numpy, which stands for a card's products, rounds by their shape here")
    rows = interpreter.submit(rows_of_one_token, dtype).result()
    assert len(rows) == len(PASSES)
    assert all(torch.equal(row, rows[PASSES[0]]) for row in rows.values())


COMPILED = [
    (80, torch.bfloat16, 64, "silu"),
    (89, torch.bfloat16, 20, "gelu_tanh"),
    (90, torch.bfloat16, 1, ""),
]
if EVERYWHERE:
    COMPILED = [
        (card, torch.bfloat16, tokens, how)
        for card in SHARED
        if card >= 80
        for tokens in (1, 20, 64)
        for how in ("", "silu", "gelu_tanh")
    ]


@pytest.mark.parametrize(("card", "dtype", "tokens", "how"), part(COMPILED), ids=str)
def test_kernels_compile_for_cards(monkeypatch, tmp_path, card, dtype, tokens, how):
    """Products are those of matrix units, each for eight tokens: a token's sums are the same
    whatever the tile is. The units of 9.0 for 64 lines at once are not used."""
    from decoders.engine.lowering import launches as kernels
    from decoders.engine.lowering.launches import product_tiles

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tiles, stages = product_tiles(tokens, dtype.itemsize, how != "")
    late = {"LATE": dtype == torch.float32}
    for function, constants, warps in (
        (kernels.product, {**tiles, "HOW": how, "ADD": how == "", "BIAS": False}, 4),
        (kernels.norm, {"BLOCK": 4096, "ADD": how == "", **late}, 4),
        (kernels.rotate, {"HALF": 64, "BLOCK": 64, **late}, 1),
    ):
        pointers = "x", "weight", "bias", "add", "out", "cos", "sin"
        signature = dict.fromkeys(function.arg_names, "i64") | {"m": "i32", "eps": "fp32"}
        signature |= dict.fromkeys(("K", "size", "heads", "heads_second"), "i32")
        signature |= dict.fromkeys(("N_first", "N_second", "N_third"), "i32")
        signature |= dict.fromkeys(pointers, POINTERS[dtype])
        aligned = [*pointers, "K", "N_first", "weight_second", "second"]
        options = {"num_warps": warps, "num_stages": stages}
        built = compiled(function, card, signature, constants, aligned, **options)
        if function is kernels.product:
            assert "mma.sync" in built.asm["ptx"]
            assert "wgmma" not in built.asm["ptx"]
