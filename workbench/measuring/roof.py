"""What this machine can do at most: bytes that it reads and operations that it computes a second.

Both are measured alone, on more memory than caches hold and on one large product, as the figures
in a data sheet are meant.
"""

import time
from collections.abc import Callable

import torch

from decoders.devices import device_of

READ_BYTES = 2**28
WIDTH_ON_HOST, WIDTH = 1024, 8192  # rows and columns of the product
REPEATS = 9


def measured(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """The figures, by the names that a run's environment has for them.

    Args:
        device: the device that decodes
        dtype: the number type in which it multiplies
    """
    width = WIDTH_ON_HOST if device_of(device).on_host else WIDTH
    memory = torch.ones(READ_BYTES // 4, device=device)
    factor = torch.ones(width, width, dtype=dtype, device=device)
    wait = device_of(device).synchronize
    return {
        "bytes_per_second": READ_BYTES / _seconds(memory.sum, wait),
        "operations_per_second": 2 * width**3 / _seconds(lambda: factor @ factor, wait),
    }


def _seconds(action: Callable[[], object], wait: Callable[[], None]) -> float:
    """The quickest of a few runs: whatever else the machine does only ever slows one."""
    each = []
    for _ in range(REPEATS):
        wait()
        began = time.perf_counter()
        action()
        wait()
        each.append(time.perf_counter() - began)
    return min(each)
