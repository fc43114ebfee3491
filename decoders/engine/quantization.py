"""Quantised weights: made while loading (torchao), or as a checkpoint brings them, through transformers."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from decoders.errors import InputError

KINDS = "int8", "int4"


def options(kind: str | None, name: str, config: PreTrainedConfig, device: torch.device) -> dict[str, Any]:
    """What `from_pretrained` is given besides, for weights of this kind. Raises InputError, before weights are read, for what cannot be."""
    given = getattr(config, "quantization_config", None)
    method = given.get("quant_method") if isinstance(given, dict) else getattr(given, "quant_method", None)
    if kind is None:
        if method == "mxfp4":  # kernels for it would be fetched as binaries when the model is loaded
            from transformers.utils.quantization_config import Mxfp4Config

            return {"quantization_config": Mxfp4Config(dequantize=True)}
        return {}
    if kind not in KINDS:
        raise InputError(f"quantization must be one of {', '.join(KINDS)} or None, not {kind!r}.")
    if method is not None:
        raise InputError(f"{name} comes quantised already ({method}); leave quantization out.")
    if missing := [package for package in ("torchao", "accelerate") if find_spec(package) is None]:
        raise InputError(
            f"quantization={kind!r} needs {' and '.join(missing)}; install them with `pip install {' '.join(missing)}`."
        )
    if kind == "int4" and device.type != "cuda":
        raise InputError(f"int4 weights need a CUDA device, and this is {device}; take quantization='int8'.")
    from torchao import quantization
    from transformers import TorchAoConfig

    scheme = quantization.Int8WeightOnlyConfig() if kind == "int8" else quantization.Int4WeightOnlyConfig()
    return {"quantization_config": TorchAoConfig(scheme)}


def is_plain(weight: Tensor) -> bool:
    """Whether a weight is stored as the numbers that it stands for."""
    return type(weight.data) is Tensor


def stored_bytes(weight: Tensor) -> int:
    """What a weight takes in memory; a quantised one says what it stands for instead."""
    if is_plain(weight) or not hasattr(weight.data, "__tensor_flatten__"):
        return weight.nbytes
    names, _ = weight.data.__tensor_flatten__()
    return sum(stored_bytes(getattr(weight.data, name)) for name in names)
