"""Quantised weights: made while loading (torchao), or read from a checkpoint by transformers."""

from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils.quantization_config import Mxfp4Config

from decoders.devices import device_of
from decoders.errors import InputError, allowed, installed
from decoders.inputs import is_gguf

KINDS = "int8", "int4"
# The packages that read quantised checkpoints, by the method that their config names. For other
# methods transformers itself says which package is missing.
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


def options(
    kind: str | None, name: str, config: PreTrainedConfig, device: torch.device
) -> dict[str, Any]:
    """Extra arguments for `from_pretrained`, for weights of this kind.

    Args:
        kind: one of KINDS, or None for weights as they are stored
        name: the model's name, for messages
        config: the model's config
        device: where the weights will be

    Raises:
        InputError: if such weights are not supported, before any are read
    """
    method = method_of(config)
    allowed("quantization", kind, choices=(*KINDS, None))
    if is_gguf(name):
        if kind is not None:
            raise InputError(f"{name} is a GGUF file; leave quantization out.")
        from transformers import GgufConfig

        return {"quantization_config": GgufConfig(dequantize=True)}
    if kind is not None:
        if method is not None:
            raise InputError(f"{name} comes quantised already ({method}); leave quantization out.")
        installed(READERS["torchao"], f"quantization={kind!r} needs")
        if kind not in device_of(device).quantizations:
            raise InputError(
                f"{kind} weights need a CUDA device, and this is {device}; take "
                "quantization='int8'."
            )
        from torchao import quantization
        from transformers import TorchAoConfig

        schemes = quantization.Int8WeightOnlyConfig, quantization.Int4WeightOnlyConfig
        return {"quantization_config": TorchAoConfig(schemes[KINDS.index(kind)]())}
    if method is None:
        return {}
    # It would take the stored numbers for the weights, and mention that only in its log.
    if method not in (*AUTO_QUANTIZATION_CONFIG_MAPPING, "bitsandbytes"):
        raise InputError(
            f"{name} comes quantised in a way that the installed transformers does not know "
            f"({method or 'its config names none'}); name the model that it was made of, or update "
            "transformers."
        )
    installed(READERS.get(method, ()), f"{name} comes quantised ({method}), which needs")
    # Kernels for it would be fetched as binaries when the model is loaded.
    return {"quantization_config": Mxfp4Config(dequantize=True)} if method == "mxfp4" else {}


def method_of(config: PreTrainedConfig) -> str | None:
    """The method by which a checkpoint is quantised; "" if its config names none, None if plain."""
    quantised = getattr(config, "quantization_config", None)
    quantised = quantised or getattr(config.get_text_config(), "quantization_config", None)
    if not quantised:
        return None
    settings = quantised if isinstance(quantised, dict) else vars(quantised)
    if settings.get("load_in_8bit") or settings.get("load_in_4bit"):
        return "bitsandbytes"
    method = settings.get("quant_method") or ""
    return str(getattr(method, "value", method))


def is_plain(weight: torch.Tensor) -> bool:
    """Whether a weight is stored as the numbers that it stands for."""
    return type(weight.data) is torch.Tensor


def stored_bytes(weight: torch.Tensor) -> int:
    """Bytes that a weight takes in memory; `nbytes` of a quantised one is that of a plain one."""
    if is_plain(weight) or not hasattr(weight.data, "__tensor_flatten__"):
        return weight.nbytes
    names, _ = weight.data.__tensor_flatten__()
    return sum(stored_bytes(getattr(weight.data, name)) for name in names)
