"""Products with weights of half the size: right, and with the same bits in a pass of any size."""

import subprocess
import sys

import pytest
import torch

from decoders.engine.kernels.loading import kernels
from decoders.engine.weights import Halves, PassLinear, hasten
from tests.pairwise import pairwise

pytest.importorskip("numba")


@torch.inference_mode(False)  # weights made there are not copied
def a_layer(size, width, bias=True, large=1.0, dtype=torch.float32):
    """A layer that float16 holds, scaled if it is small; if a number is large, bfloat16 alone."""
    torch.manual_seed(size + width)
    layer = torch.nn.Linear(size, width, bias=bias)
    with torch.no_grad():
        layer.weight.mul_(min(large, 1.0))
        layer.weight[0, 0] = large
        layer.weight.copy_(layer.weight.bfloat16())
    model = torch.nn.Sequential(layer)
    hasten(model)
    assert type(layer) is PassLinear
    return layer.to(dtype)


@pytest.mark.parametrize(("tokens", "shape", "bias", "large"), pairwise(
    [1, 2, 3, 4, 5, 6, 7, 11, 14, 15, 40],
    [(1, 1), (7, 31), (64, 32), (96, 33), (20, 100)],
    [False, True],
    [1.0, 2.0**40, 1e-6],
))  # fmt: skip
@torch.inference_mode()
def test_a_row_has_the_same_bits_in_a_pass_of_any_size(tokens, shape, bias, large):
    size, width = shape
    layer = a_layer(size, width, bias, large)
    x = torch.randn(1, tokens, size, generator=torch.Generator().manual_seed(0))
    together = layer(x)[0]
    assert isinstance(layer.copied(), Halves)
    alone = large > 1 and width > 1
    assert layer.copied().weight.dtype == (torch.bfloat16 if alone else torch.float16)
    assert torch.equal(together, torch.cat([layer(x[:, i : i + 1])[0] for i in range(tokens)]))
    exact = torch.nn.functional.linear(
        x[0].double(), layer.weight.double(), layer.bias.double() if bias else None
    )
    torch.testing.assert_close(together.double(), exact, rtol=1e-5, atol=1e-5 * min(large, 1.0))
    assert layer.copied_bytes == size * -(-width // 32) * 64  # whole blocks of 32 outputs


def multiply(layer, x, out):
    """Products of rows (n, size), by kernels, to rows (n, width)."""
    weights = layer.for_kernels()
    address, bias, form = weights.places()
    kernels().multiply(
        x.data_ptr(), len(x), address, x.shape[1], out.shape[1], out.data_ptr(), bias, form,
        weights.factor,
    )  # fmt: skip


@pytest.mark.parametrize(("tokens", "shape", "bias"), pairwise(
    [1, 2, 5, 6, 7, 13, 40], [(16, 1), (32, 31), (64, 32), (96, 33), (16, 102)], [False, True]
))  # fmt: skip
@torch.inference_mode()
def test_weights_in_bfloat16_are_read_where_they_are(tokens, shape, bias):
    """Where a model is too large for copies; to the same bits for a row, again."""
    size, width = shape
    layer = a_layer(size, width, bias, dtype=torch.bfloat16)
    layer.copies = False
    x = torch.randn(tokens, size, generator=torch.Generator().manual_seed(0))

    def product(rows):
        out = torch.full((len(rows), width), torch.nan)
        multiply(layer, rows, out)
        return out

    together = product(x)
    assert layer.for_kernels().places()[0] == layer.weight.data_ptr()
    assert torch.equal(together, torch.cat([product(x[i : i + 1]) for i in range(tokens)]))
    exact = torch.nn.functional.linear(
        x.double(), layer.weight.double(), layer.bias.double() if bias else None
    )
    torch.testing.assert_close(together.double(), exact, rtol=1e-5, atol=1e-5)
    layer.in_features = size + 1  # no whole number of parts
    assert layer.for_kernels() is None


NARROW = """
import sys
import torch
from llvmlite import binding
able = binding.get_host_cpu_features()
able["avx512f"] = False
binding.get_host_cpu_features = lambda: able
from numba import njit
from decoders.engine.kernels import program, tiles
assert not tiles.WIDE
x, weight = torch.load(sys.argv[1])
outs = []
for weights, form in ((tiles.in_blocks(weight), 1), (weight.bfloat16(), 3)):
    out = torch.empty(len(x), len(weight))
    njit(lambda *all: program.product(*all))(
        x.data_ptr(), len(x), weights.data_ptr(), x.shape[1], len(weight), out.data_ptr(), 0, form,
        1.0, 0,
    )
    outs.append(out)
torch.save(outs, sys.argv[1])
"""


@pytest.mark.slow
@torch.inference_mode()
def test_vectors_of_any_length_give_the_same_bits(tmp_path):
    """A processor with AVX-512 multiplies other blocks than one without."""
    from decoders.engine.kernels import tiles

    if not tiles.WIDE:
        pytest.skip("this processor has one length of vectors")
    layer, file = a_layer(48, 150, bias=False), tmp_path / "x.pt"
    x, rows = torch.randn(1, 11, 48), torch.empty(11, 150)
    wide = layer(x)[0]
    torch.save((x[0], layer.weight.half()), file)
    subprocess.run([sys.executable, "-c", NARROW, file], check=True, timeout=120)
    layer = a_layer(48, 150, bias=False, dtype=torch.bfloat16)
    layer.copies = False
    multiply(layer, x[0], rows)
    blocks, lying = torch.load(file)
    assert torch.equal(blocks, wide)
    assert torch.equal(lying, rows)
