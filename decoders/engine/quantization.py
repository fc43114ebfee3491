"""Quantised weights: made while loading (torchao), or as a checkpoint brings them, through transformers."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING

from decoders.errors import InputError

KINDS = "int8", "int4"
# What reads checkpoints that come quantised, by the method that their config names. Of others transformers itself says what is missing.
READERS = {
    "gptq": ("optimum", "gptqmodel"),
    "awq": ("gptqmodel", "accelerate"),
    "bitsandbytes": ("bitsandbytes", "accelerate"),
    "compressed-tensors": ("compressed_tensors",),
    "fp8": ("accelerate",),
    "mxfp8": ("accelerate",),
    "torchao": ("torchao", "accelerate"),
    "hqq": ("hqq", "accelerate"),
    "auto-round": ("auto_round",),
}


def options(kind: str | None, name: str, config: PreTrainedConfig, device: torch.device) -> dict[str, Any]:
    """What `from_pretrained` is given besides, for weights of this kind. Raises InputError, before weights are read, for what cannot be."""
    method = method_of(config)
    if kind is None:
        if method is not None:
            _readable(name, method)
        if method == "mxfp4":  # kernels for it would be fetched as binaries when the model is loaded
            from transformers.utils.quantization_config import Mxfp4Config

            return {"quantization_config": Mxfp4Config(dequantize=True)}
        return {}
    if kind not in KINDS:
        raise InputError(f"quantization must be one of {', '.join(KINDS)} or None, not {kind!r}.")
    if method is not None:
        raise InputError(f"{name} comes quantised already ({method}); leave quantization out.")
    _installed(READERS["torchao"], f"quantization={kind!r} needs")
    if kind == "int4" and device.type != "cuda":
        raise InputError(f"int4 weights need a CUDA device, and this is {device}; take quantization='int8'.")
    from torchao import quantization
    from transformers import TorchAoConfig

    scheme = quantization.Int8WeightOnlyConfig() if kind == "int8" else quantization.Int4WeightOnlyConfig()
    return {"quantization_config": TorchAoConfig(scheme)}


def method_of(config: PreTrainedConfig) -> str | None:
    """How the weights of a checkpoint come quantised; "" if its config does not say, None if they are plain."""
    parts = config, config.get_text_config()
    given = next((found for part in parts if (found := getattr(part, "quantization_config", None))), None)
    if given is None:
        return None
    settings = given if isinstance(given, dict) else vars(given)
    if settings.get("load_in_8bit") or settings.get("load_in_4bit"):
        return "bitsandbytes"
    method = settings.get("quant_method") or ""
    return str(getattr(method, "value", method))


def _readable(name: str, method: str) -> None:
    """Raise InputError unless transformers reads such weights here: of a method that it does not know it would take the stored numbers
    for the weights, without a word but in its log."""
    if method not in AUTO_QUANTIZATION_CONFIG_MAPPING and method != "bitsandbytes":
        raise InputError(
            f"{name} comes quantised in a way that the installed transformers does not know ({method or 'its config names none'}); name "
            "the model that it was made of, or update transformers."
        )
    _installed(READERS.get(method, ()), f"{name} comes quantised ({method}), which needs")


def _installed(packages: Sequence[str], needs: str) -> None:
    """Raise InputError, which begins with `needs`, if some of the packages are not installed."""
    if missing := [package.replace("_", "-") for package in packages if find_spec(package) is None]:
        raise InputError(f"{needs} {' and '.join(missing)}; install with `pip install {' '.join(missing)}`.")


def is_plain(weight: Tensor) -> bool:
    """Whether a weight is stored as the numbers that it stands for."""
    return type(weight.data) is Tensor


def stored_bytes(weight: Tensor) -> int:
    """What a weight takes in memory; a quantised one says what it stands for instead."""
    if is_plain(weight) or not hasattr(weight.data, "__tensor_flatten__"):
        return weight.nbytes
    names, _ = weight.data.__tensor_flatten__()
    return sum(stored_bytes(getattr(weight.data, name)) for name in names)
