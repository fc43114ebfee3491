"""Memory in large pages: where it lies, what it holds, and that it is given back."""

import gc
import itertools
import mmap
import weakref

import pytest
import torch

from decoders.engine import pages
from decoders.engine.pages import LINE, PAGE, STRETCH, Shelf, empty

LINUX = hasattr(mmap, "MADV_HUGEPAGE")


@pytest.fixture
def mapped(monkeypatch) -> list:
    """References to the memory that is mapped."""
    made = []

    class Seen(mmap.mmap):
        def __init__(self, *_, **__):
            made.append(weakref.ref(self))

    if LINUX:
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
    if LINUX and tensor.nbytes >= PAGE // 4:
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


def test_a_shelf_keeps_copies_apart_until_the_last_has_gone(mapped):
    shelf, generator = Shelf(), torch.Generator().manual_seed(0)
    sizes = [(5,), (512, 1024), (3, 7), (STRETCH // 2,), (1, 1), (2 * STRETCH,), (64, 64)]
    given = [torch.randn(size, generator=generator).half().t() for size in sizes[1:3]]
    given += [torch.randn(size, generator=generator).half() for size in sizes]
    kept = [shelf.put(tensor) for tensor in given]
    for tensor, copy in zip(given, kept, strict=True):
        assert torch.equal(copy, tensor)
        assert copy.is_contiguous()
        assert copy.data_ptr() % LINE == 0
    places = sorted((copy.data_ptr(), copy.nbytes) for copy in kept)
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(places))
    if LINUX:
        assert 1 < len(mapped) < len(given)
    del shelf, kept, copy
    gc.collect()
    assert all(ref() is None for ref in mapped)
