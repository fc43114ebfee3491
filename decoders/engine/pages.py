"""Memory in large pages (`empty`), and tensors close together in it (Shelf).

A pass reads all weights and all rows once. If they lie in pages of 4 kB, the processor spends a
quarter of the time on looking up where each page is, because it remembers only a few thousand.
"""

import math
import mmap
import threading
from collections.abc import Sequence

import torch

PAGE, LINE = 2**21, 64  # bytes
STRETCH = 8 * PAGE
_lock = threading.Lock()  # passes of one model may come from several threads


def empty(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on the CPU, in large pages if it would fill at least a quarter of one.

    Linux gives them on request; elsewhere, and where it does not, pages are the usual ones.
    """
    count = math.prod(shape)
    size = count * dtype.itemsize
    if size < PAGE // 4 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(shape, dtype=dtype, device="cpu")
    # Large pages begin at multiples of their size, so there is one more.
    whole = PAGE + -(-size // PAGE) * PAGE
    try:
        memory = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # no room, or a kernel without them
        return torch.empty(shape, dtype=dtype, device="cpu")
    begin = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % PAGE
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=begin).view(shape)


class Shelf:
    """Keeps copies of tensors on the CPU, small ones one after another in stretches of memory.

    A stretch is freed when it is full, or the next one has begun, and the last of its tensors has
    gone.
    """

    def __init__(self) -> None:
        self._free = empty([0], torch.uint8)

    # A stretch that was made in inference mode could not be written to outside of it.
    @torch.inference_mode(False)
    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy, which begins where a line of the cache does."""
        size = -(-tensor.nbytes // LINE) * LINE
        if size > STRETCH // 2:
            return empty(tensor.shape, tensor.dtype).copy_(tensor)
        with _lock:
            if size > len(self._free):
                self._free = empty([STRETCH], torch.uint8)
            place, self._free = self._free[: tensor.nbytes], self._free[size:]
            if not len(self._free):
                self._free = empty([0], torch.uint8)
        return place.view(tensor.dtype).view(tensor.shape).copy_(tensor)
