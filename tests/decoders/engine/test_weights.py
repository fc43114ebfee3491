"""A product by another routine is the same product."""

import pytest
import torch

import decoders
from decoders.engine.weights import (
    COPIED_BYTES,
    BytesRead,
    PassLinear,
    forget_copies,
    half_of,
    hasten,
)
from tests.models import build_both
from tests.needs import needs_kernels


@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2), (torch.float64, 0)]
)
@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (1, 7), (1, 40), (3,), (2, 3), (1, 3, 2)])
def test_the_same_product(shape, dtype, tolerance, bias, copied):
    generator = torch.Generator().manual_seed(len(shape))
    plain = torch.nn.Linear(47, 33, bias=bias, dtype=dtype)
    model = torch.nn.Sequential(plain, torch.nn.ReLU())
    x = torch.randn(*shape, 47, generator=generator).to(dtype)
    with torch.inference_mode():
        expected = model(x)
        weight = plain.weight
        hasten(model, COPIED_BYTES if copied else 0)
        out = model(x)
    assert type(plain) is PassLinear
    assert plain.weight is weight
    assert plain.copies == copied
    assert out.is_contiguous()
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)


def test_copies_are_made_anew_once_they_are_forgotten():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False))
    hasten(model)
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = model(x)
        model[0].weight.mul_(2)
        forget_copies(model)
        torch.testing.assert_close(model(x), 2 * before)


def test_weights_whose_changes_cannot_be_seen_are_not_copied():
    with torch.inference_mode():
        model = torch.nn.Sequential(torch.nn.Linear(8, 4))
        hasten(model)
        x, before = torch.ones(1, 8), model(torch.ones(1, 8))
        model[0].weight.add_(1)
        assert not torch.equal(model(x), before)


def test_an_own_kind_of_linear_layer_stays_as_it_is():
    class Other(torch.nn.Linear):
        pass

    model = torch.nn.Sequential(Other(6, 5))
    hasten(model)
    assert type(model[0]) is Other


def test_what_copies_take_is_known_before_a_pair_is_loaded():
    cpu = torch.device("cpu")
    assert decoders.copies_bytes(1000, cpu) == 1000
    # one model may be small
    assert decoders.copies_bytes(10 * COPIED_BYTES, cpu) == 2 * COPIED_BYTES
    assert decoders.copies_bytes(1000, torch.device("cuda")) == 0


@needs_kernels
@pytest.mark.parametrize("tokens", [1, 5, 32, 33, 190, 200])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("factor", [1.0, 1e-6])
def test_weights_published_in_bfloat16_are_copied_in_half_of_the_memory(factor, tokens, bias):
    """Their product is as near to float64's as sequential sums in float32 can be."""
    generator = torch.Generator().manual_seed(tokens)
    plain = torch.nn.Linear(300, 40, bias=bias)
    with torch.no_grad():
        plain.weight.copy_((plain.weight * factor).bfloat16())
    model, x = torch.nn.Sequential(plain), torch.randn(tokens, 300, generator=generator)
    exact = torch.nn.functional.linear(
        x.double(), plain.weight.double(), None if plain.bias is None else plain.bias.double()
    )
    hasten(model)
    with torch.inference_mode():
        error = (model(x) - exact).abs()
    shift = 0 if plain.bias is None else plain.bias.abs()
    scale = x.double().norm(dim=1)[:, None] * plain.weight.double().norm(dim=1) + shift
    assert (error <= 30 * torch.finfo(torch.float32).eps * scale).all()
    assert plain.copied_bytes == 300 * 64 * 2  # whole blocks of 32 outputs


@needs_kernels
@pytest.mark.parametrize(
    "weight", [torch.full((2, 3), 1 / 3), torch.full((2, 3), 1e6), torch.full((2, 3), torch.nan)]
)
def test_weights_that_float16_would_change_are_not_halved(weight):
    assert half_of(weight) is None
    assert half_of(torch.tensor([[0.0, 0.0], [-1.5, 2.0**-24]]))[1] == 1
    # too small for float16 as they are
    assert half_of(torch.tensor([[2.0**-30, 3 * 2.0**-28]]))[1] < 1


@needs_kernels
def test_a_pass_of_few_tokens_is_charged_for_the_copies_that_it_reads():
    """It was charged for the weights in float32, twice of what it read."""
    layer = torch.nn.Linear(64, 256, bias=False)
    layer.weight.data = layer.weight.data.half().float()
    model = torch.nn.Sequential(layer, torch.nn.LayerNorm(256))
    whole = sum(weight.nbytes for weight in model.parameters())
    hasten(model)
    read = BytesRead(model, torch.float32, whole)
    model(torch.ones(1, 64))
    assert read(1) == whole - layer.weight.nbytes // 2
    assert read(10**6) == whole


@needs_kernels
def test_a_decoding_is_charged_for_them():
    model = build_both(torch.float32)[0]
    for weight in model.parameters():
        weight.data = weight.data.half().float()
    pair = decoders.ModelPair(model, None)
    found = decoders.generate(pair, [1], "greedy", max_new_tokens=1, ignore_eos=True).metrics
    linear = sum(m.weight.nbytes for m in model.modules() if isinstance(m, torch.nn.Linear))
    packed = pair.packed["target"]
    copies = packed.copied_bytes
    assert found.bytes_read == packed.weight_bytes - linear + copies + packed.row_bytes
