"""Shared by all sections: the device, small random models, and the way passes are replayed."""

import os
import platform
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from decoders import default_device
from decoders.engine.attention import operator

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]


class Wrong(Exception):
    """A fault that a section found, in one sentence."""


def llama(dtype: torch.dtype = torch.float64, **sizes: float) -> Any:
    """A random model, small unless `sizes` say otherwise."""
    torch.manual_seed(0)
    given: dict[str, Any] = {
        "vocab_size": 67,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
    } | sizes
    model: Any = LlamaForCausalLM(LlamaConfig(**given, bos_token_id=None, eos_token_id=None))
    return model.to(default_device(), dtype).eval()


def recorded() -> tuple[str, torch.dtype]:
    """How passes are replayed on this device, and the number type to test that in.

    CUDA graphs need the kernel, which has no float64.
    """
    return (
        ("graphs", torch.float32)
        if default_device().type == "cuda"
        else ("recorded", torch.float64)
    )


def machine() -> Iterator[str]:
    """The machine, versions, and the ways to attend that may be taken here."""
    yield (
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )
    yield f"{os.cpu_count()} processors, {torch.get_num_threads()} threads, {platform.machine()}"
    if default_device().type == "cuda":
        major, minor = torch.cuda.get_device_capability()
        yield (
            f"{torch.cuda.get_device_name()}, capability {major}.{minor}, "
            f"{torch.cuda.get_device_properties(0).total_memory / 1e9:.0f} GB, "
            f"CUDA {torch.version.cuda}"
        )
        yield (
            f"FlashAttention {'may be' if operator.FLASH else 'is not'} taken, "
            f"Triton {'may be' if operator.TRITON else 'is not'}"
        )
    else:
        yield "There is no CUDA device: kernels are left out, everything else runs on the CPU."
