"""The abilities of a device (Device).

Only this file asks which kind of device it is, so a new kind is one more class here.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch


@dataclass(frozen=True)
class Device:
    """A device of an unknown kind: it gets what runs everywhere.

    Attributes:
        place: where its tensors are
        on_host: whether its tensors are in this process's memory, where Python reads them without a
            transfer
        pins: whether it copies faster, and beside other work, from memory that is pinned for it
        quantizations: the forms in which the weights of linear layers can be stored
        meter: the meter that counts its energy: "GPU", "CPU", or "" for none
    """

    place: torch.device
    on_host = False
    pins = False
    quantizations: tuple[str, ...] = ("int8",)
    meter = ""

    @property
    def name(self) -> str:
        """Its name, for people; "" if it has none."""
        return ""

    @property
    def default_dtype(self) -> torch.dtype:
        """The dtype that "auto" stands for."""
        return torch.float32

    @property
    def training_dtype(self) -> torch.dtype:
        """The precision of passes of a training: bfloat16 where its products are quick."""
        return torch.float32

    @property
    def free_bytes(self) -> int | None:
        """Bytes of memory that it has left; None if it does not say."""
        return None

    def has_kernels(self, dtype: torch.dtype) -> bool:
        """Whether attention has kernels here that take all requests of a pass at once."""
        return False

    def products(self) -> str:
        """The precision of float32 products: "ieee", "tf32" or "bf16"."""
        backend: Any = torch.backends.mkldnn  # its types leave this out
        return backend.matmul.fp32_precision

    def current(self) -> AbstractContextManager[Any]:
        """A context in which new tensors and launches of this thread belong to the device."""
        return nullcontext()

    def synchronize(self) -> None:
        """Wait until the device has done all its work."""


class Host(Device):
    """A CPU."""

    on_host = True
    meter = "CPU"

    @property
    def training_dtype(self) -> torch.dtype:
        # On processors that have no products in bfloat16, it takes seven times as long.
        quick = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return torch.bfloat16 if quick else torch.float32


class Cuda(Device):
    """A GPU that torch drives by its CUDA interface, of whichever maker."""

    pins = True
    quantizations = "int8", "int4"
    meter = "GPU"

    @property
    def name(self) -> str:
        return torch.cuda.get_device_name(self.place)

    @property
    def _modern(self) -> bool:
        return torch.cuda.get_device_capability(self.place) >= (8, 0)

    @property
    def default_dtype(self) -> torch.dtype:
        # On older GPUs bfloat16 is very slow.
        return torch.bfloat16 if self._modern else torch.float16

    @property
    def training_dtype(self) -> torch.dtype:
        return torch.bfloat16 if self._modern else torch.float32

    @property
    def free_bytes(self) -> int | None:
        return torch.cuda.mem_get_info(self.place)[0]

    def has_kernels(self, dtype: torch.dtype) -> bool:
        return dtype != torch.float64 and self._modern

    def products(self) -> str:
        return torch.backends.cuda.matmul.fp32_precision

    def current(self) -> AbstractContextManager[Any]:
        return torch.cuda.device(self.place)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.place)


KINDS = {"cpu": Host, "cuda": Cuda}


@lru_cache(maxsize=64)
def device_of(place: torch.device | str) -> Device:
    """The Device for a device of torch, or for its name."""
    place = torch.device(place) if isinstance(place, str) else place
    return KINDS.get(place.type, Device)(place)


def all_devices() -> list[str]:
    """The devices that models can be put on, the best first."""
    return [*(f"cuda:{i}" for i in range(torch.cuda.device_count())), "cpu"]


def default_device() -> torch.device:
    """The device where `load_pair` puts models by default: CUDA if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def default_dtype(device: torch.device) -> torch.dtype:
    """The dtype that "auto" stands for in `load_pair`.

    On CUDA it is bfloat16, or float16 below capability 8.0, where bfloat16 is very slow; else
    float32.

    Args:
        device: where the models are
    """
    return device_of(device).default_dtype
