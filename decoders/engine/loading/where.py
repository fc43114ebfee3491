"""Where models are loaded to, and in which type of numbers."""

from importlib.util import find_spec
from typing import Any

import torch

from decoders.devices import default_device, default_dtype, device_of
from decoders.errors import InputError, allowed, first_line, quoted, refuse

DTYPES = torch.float32, torch.bfloat16, torch.float16, torch.float64


def placed(
    device: str | torch.device | None,
    draft_device: str | torch.device | None,
    device_map: str | None,
) -> list[tuple[torch.device, dict[str, Any]]]:
    """The devices of target and draft, and the options that read weights there."""
    at, draft_at = _device(device), _device(device if draft_device is None else draft_device)
    allowed("device_map", device_map, choices=("auto", None))
    refuse(
        (
            device_map and device is not None,
            "device_map='auto' chooses the devices; leave device out.",
        ),
        (
            device_map and find_spec("accelerate") is None,
            "device_map='auto' needs the package accelerate; install it with "
            "`pip install accelerate`.",
        ),
    )
    draft_map = device_map if draft_device is None else None
    return [(at, _map(device_map, at)), (draft_at, _map(draft_map, draft_at))]


def _map(device_map: str | None, device: torch.device) -> dict[str, Any]:
    """The `device_map` that reads weights to all GPUs or straight to one, if accelerate is there.

    Without accelerate, weights go through this process's memory.
    """
    straight = not device_of(device).on_host and find_spec("accelerate") is not None
    return {"device_map": device_map or {"": device}} if device_map or straight else {}


def _device(device: str | torch.device | None) -> torch.device:
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device, type(None))):
        raise InputError(
            f"A device is named by text or a torch.device, not {quoted(device)}; take 'cpu'."
        )
    try:
        place = torch.empty(0, device=device or default_device()).device
    except (RuntimeError, AssertionError, ValueError, OverflowError) as error:
        raise InputError(
            f"There is no device {quoted(str(device))} here ({first_line(error)}); take 'cpu'."
        ) from error
    if place.type == "meta":
        raise InputError("The device 'meta' holds no weights; take 'cpu'.")
    return place


def number_type(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    if isinstance(dtype, str) and dtype == "auto":
        return default_dtype(device)
    resolved = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(resolved, torch.dtype) or resolved not in DTYPES:
        raise InputError(
            "dtype must be 'auto', 'float32', 'bfloat16', 'float16' or 'float64', not "
            f"{quoted(dtype)}."
        )
    return resolved
