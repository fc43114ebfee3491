"""Memory in large pages: where it lies, what it holds, and that it is given back."""

import gc
import itertools
import mmap
import weakref
from pathlib import Path

import pytest
import torch

from decoders.engine import pages
from decoders.engine.cache import Arena
from decoders.engine.kernels.loading import kernels
from decoders.engine.pages import LINE, PAGE, STRETCH, Shelf, empty
from decoders.engine.weights import hasten

LARGE = hasattr(mmap, "MADV_HUGEPAGE") and Path("/sys/kernel/mm/transparent_hugepage").exists()


@pytest.fixture
def mapped(monkeypatch) -> list:
    """References to the memory that is mapped."""
    made = []

    class Seen(mmap.mmap):
        def __init__(self, *_, **__):
            made.append(weakref.ref(self))

    if LARGE:
        monkeypatch.setattr(pages.mmap, "mmap", Seen)
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
    monkeypatch.setattr(pages.mmap, "mmap", refuse)
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
