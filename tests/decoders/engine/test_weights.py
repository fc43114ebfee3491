"""A product by another routine is the same product; memory in large pages is given back."""

import gc
import itertools
import mmap
import weakref
from pathlib import Path

import pytest
import torch

import decoders
from decoders.engine import weights
from decoders.engine.cache import Arena
from decoders.engine.kernels.loading import kernels
from decoders.engine.weights import (
    COPIED_BYTES,
    LINE,
    PAGE,
    STRETCH,
    BytesRead,
    PassLinear,
    Shelf,
    empty,
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
    "weight", [torch.full((2, 3), number) for number in (1 / 3, 1e6, 1e30, torch.nan)]
)
def test_weights_that_float16_would_change_are_not_halved(weight):
    assert half_of(weight) is None
    assert half_of(torch.tensor([[0.0, 0.0], [-1.5, 2.0**-24]]))[1] == 1
    long = torch.ones(600, 3)
    assert torch.equal(half_of(long)[0], long.half())
    long[-1, 1] = 1 / 3  # in the last of its parts
    assert half_of(long) is None
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("rows", [0, 3, PAGE // 16, PAGE // 4 + 5])
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


@pytest.mark.parametrize("missing", ["the advice", "memory"])
def test_a_system_without_large_pages_gives_usual_ones(missing, monkeypatch):
    def refuse(*_, **__):
        raise OSError("Cannot allocate memory")

    if missing == "the advice":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    monkeypatch.setattr(weights.mmap, "mmap", refuse)
    assert empty((PAGE,), torch.float32).fill_(1).sum() == PAGE


def test_the_default_device_is_not_asked():
    """Under a default of another device small arenas of a model on the CPU lay there."""
    with torch.device("meta"):
        assert empty((3,), torch.float32).device.type == "cpu"
        assert Shelf().put(torch.ones(3, device="cpu")).tolist() == [1.0] * 3


def alive(mapped) -> int:
    gc.collect()
    return sum(ref() is not None for ref in mapped)


def test_a_shelf_keeps_copies_apart_and_frees_them(mapped):
    """A stretch that was full stayed for as long as its shelf."""
    shelf, generator = Shelf(), torch.Generator().manual_seed(0)
    sizes = [(5,), (512, 1024), (3, 7), (STRETCH // 4 - 8,), (1, 1), (2 * STRETCH,), (64, 64)]
    sizes += [(STRETCH // 8, 2)] * 5
    given = [torch.randn(size, generator=generator).half().t() for size in sizes[1:3]]
    given += [torch.randn(size, generator=generator).half() for size in sizes]
    kept = [shelf.put(tensor) for tensor in given]
    for tensor, copy in zip(given, kept, strict=True):
        assert torch.equal(copy, tensor)
        assert copy.is_contiguous()
        assert copy.data_ptr() % LINE == 0
    places = sorted((copy.data_ptr(), copy.nbytes) for copy in kept)
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(places))
    if LARGE:
        assert 2 < alive(mapped) < len(given)
    del kept, copy
    assert alive(mapped) <= 1  # the one that the next tensor comes into
    again = [shelf.put(tensor) for tensor in given for _ in range(3)]
    assert torch.equal(again[-1], given[-1])
    del again, shelf
    assert alive(mapped) == 0


def test_a_shelf_is_filled_in_and_out_of_inference_mode():
    shelf, bytes = Shelf(), torch.arange(5, dtype=torch.uint8)
    with torch.inference_mode():
        assert torch.equal(shelf.put(bytes), bytes)
    assert torch.equal(shelf.put(bytes), bytes)


@pytest.mark.skipif(not LARGE, reason="this system has no large pages")
def test_weights_and_caches_lie_in_them(mapped):
    """With usual pages a token of greedy decoding took 3.0 ms instead of 2.1."""
    arena = Arena([(4, 64, 64)] * 2, torch.float32, torch.device("cpu"))
    rows = arena.take(PAGE // 2048)
    arena.keys[1][rows.base : rows.base + 9] = torch.arange(9.0)[:, None, None]
    other = arena.take(PAGE // 512)  # it grows
    assert torch.equal(arena.keys[1][:9, 3, 63], torch.arange(9.0))
    assert other.base >= rows.capacity
    assert arena.keys[0].data_ptr() % PAGE == arena.values[0].data_ptr() % PAGE == 0
    assert alive(mapped) == 2  # keys and values; those before have gone
    if kernels() is None:
        return
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, bias=False) for _ in range(2)))
    for layer in model:  # weights that float16 holds
        layer.weight.data = layer.weight.data.bfloat16().float()
    hasten(model)
    first, second = (layer.copied().blocks for layer in model)
    assert first.data_ptr() % PAGE == 0
    assert second.data_ptr() == first.data_ptr() + first.nbytes
