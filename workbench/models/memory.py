"""The memory of a device, and whether weights fit into it."""

from pathlib import Path

import torch

from decoders import InputError, copies_bytes
from decoders.devices import device_of

CACHE_BYTES = 2**30  # left for caches and activations next to the weights
CGROUP = Path("/sys/fs/cgroup")


def available_bytes(device: torch.device) -> int | None:
    """Free memory of the device, None if it does not say.

    On the CPU the container's limit counts as well.
    """
    if not device_of(device).on_host:
        return device_of(device).free_bytes
    return min((free for free in (_meminfo(), _container()) if free is not None), default=None)


def fits(weight_bytes: int, device: torch.device) -> bool:
    """Whether weights of this size leave room for caches.

    On a CPU, also for the copies that the engine makes of small models.
    """
    free = available_bytes(device)
    return free is None or weight_bytes + copies_bytes(weight_bytes, device) + CACHE_BYTES <= free


def must_fit(name: str, weight_bytes: int, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse weights that do not fit, before they are loaded.

    Args:
        name: the pair's name
        weight_bytes: the size of its weights
        device: the device
        dtype: the dtype of the weights

    Raises:
        InputError: if they do not fit
    """
    if not fits(weight_bytes, device):
        raise InputError(
            f"{name} does not fit: its weights take {shown_bytes(weight_bytes)} in "
            f"{str(dtype).removeprefix('torch.')} and {device} has "
            f"{shown_bytes(available_bytes(device) or 0)} free; take a smaller pair or another "
            "dtype."
        )


def shown_bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next(
        (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None
    )


def _container() -> int | None:
    """The memory that the cgroup (version 2) leaves; None if it sets no limit."""
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        return None if limit == "max" else int(limit) - int((CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return None
