"""A product by another routine is the same product; memory in large pages is given back."""

import gc
import mmap
import weakref
from pathlib import Path

import pytest
import torch

import decoders
from decoders.engine import weights
from decoders.engine.weights import (
    COPIED_BYTES,
    PAGE,
    PassLinear,
    Shelf,
    empty,
    forget_copies,
    half_of,
    hasten,
)
from tests.needs import needs_kernels
from tests.pairwise import pairwise, part


@pytest.mark.parametrize(("shape", "dtype", "bias", "copied"), pairwise(
    [(1, 1), (1, 2), (1, 7), (1, 40), (3,), (1, 3, 2)],
    [torch.float32, torch.bfloat16, torch.float64],
    [False, True],
    [False, True],
))  # fmt: skip
def test_the_same_product(shape, dtype, bias, copied):
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float64: 0}[dtype]
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


@needs_kernels
@pytest.mark.parametrize("weight", [torch.full((2, 3), x) for x in (1 / 3, 1e6, 1e30, torch.nan)])
def test_weights_that_float16_would_change_are_not_halved(weight):
    assert half_of(weight) is None
    assert half_of(torch.tensor([[0.0, 0.0], [-1.5, 2.0**-24]]))[1] == 1
    long = torch.ones(600, 3)
    assert torch.equal(half_of(long)[0], long.half())
    long[-1, 1] = 1 / 3  # in the last of its parts
    assert half_of(long) is None
    # too small for float16 as they are
    assert half_of(torch.tensor([[2.0**-30, 3 * 2.0**-28]]))[1] < 1


LARGE = hasattr(mmap, "MADV_HUGEPAGE") and Path("/sys/kernel/mm/transparent_hugepage").exists()


@pytest.fixture
def mapped(monkeypatch) -> list:
    """References to the memory that is mapped."""
    made = []

    class Seen(mmap.mmap):
        def __init__(self, *_, **__):
            made.append(weakref.ref(self))

    if LARGE:
        monkeypatch.setattr(weights.mmap, "mmap", Seen)
    return made


@pytest.mark.parametrize(
    ("rows", "dtype"),
    part([(PAGE // 16, torch.bfloat16), (0, torch.float32), (PAGE // 4 + 5, torch.float64)]),
)
def test_a_tensor_holds_what_is_written_and_its_memory_goes_with_it(rows, dtype, mapped):
    tensor = empty((2, rows, 3), dtype)
    assert tensor.shape == (2, rows, 3)
    assert tensor.dtype == dtype
    assert tensor.is_contiguous()
    tensor.copy_(torch.arange(6 * rows).view(2, rows, 3) % 97)
    assert torch.equal(tensor[1, :, 2].float(), (3 * (torch.arange(rows) + rows) + 2) % 97.0)
    if LARGE and tensor.nbytes >= PAGE // 4:
        assert tensor.data_ptr() % PAGE == 0
        assert len(mapped) == 1
    view = tensor[:, :1]
    del tensor
    gc.collect()
    assert all(ref() is not None for ref in mapped)  # somebody still looks at it
    del view
    gc.collect()
    assert all(ref() is None for ref in mapped)


def test_the_default_device_is_not_asked():
    """Under a default of another device small arenas of a model on the CPU lay there."""
    with torch.device("meta"):
        assert empty((3,), torch.float32).device.type == "cpu"
        assert Shelf().put(torch.ones(3, device="cpu")).tolist() == [1.0] * 3


def test_what_copies_take_is_known_before_a_pair_is_loaded():
    cpu = torch.device("cpu")
    assert decoders.copies_bytes(1000, cpu) == 1000
    # one model may be small
    assert decoders.copies_bytes(10 * COPIED_BYTES, cpu) == 2 * COPIED_BYTES
    assert decoders.copies_bytes(1000, torch.device("cuda")) == 0
