"""Memory in large pages (`empty`), and tensors close together in it (Shelf).

A pass reads all weights and all rows once. If they lie in pages of 4 kB, the processor spends a
quarter of the time on looking up where each page is, because it remembers only some thousand.
"""

import math
import mmap
from collections.abc import Sequence

import torch

PAGE, LINE = 2**21, 64  # bytes
STRETCH = 8 * PAGE


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on the CPU, in large pages if it would fill a good part of one.

    Only Linux has them. A system that does not give any uses its usual pages.
    """
    count = math.prod(shape)
    size = count * dtype.itemsize
    if size < PAGE // 4 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype)
    try:
        # They begin at multiples of their size.
        memory = mmap.mmap(
            -1, PAGE + -(-size // PAGE) * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # no room, or a kernel without them
        return torch.empty(shape, dtype=dtype)
    begin = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % PAGE
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=begin).view(shape)


class Shelf:
    """Keeps copies of tensors on the CPU, one after another in stretches of memory.

    A stretch is freed together with the last of its tensors.
    """

    def __init__(self) -> None:
        self._free = torch.empty(0, dtype=torch.uint8)

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy, which begins where a line of the cache does."""
        size = -(-tensor.nbytes // LINE) * LINE
        if size > len(self._free):
            self._free = empty([max(size, STRETCH)], torch.uint8)
        place, self._free = self._free[: tensor.nbytes], self._free[size:]
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)
