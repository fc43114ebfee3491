"""A head's module with the weights of a published file (filled)."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from decoders.engine.heads.layer import Both
from decoders.engine.heads.module import HeadModule, HeadSpec
from decoders.engine.weights.linear import hasten
from decoders.errors import InputError

Weights = Mapping[str, torch.Tensor]


def filled(name: str, spec: HeadSpec, weights: Weights, target: PreTrainedModel) -> HeadModule:
    """Make the module of a head, in the target's dtype and on its device.

    Args:
        name: its folder or hub id, for messages
        spec: what it is
        weights: its weights, by the names of `decoders.engine.loading.head_files`
        target: the target

    Raises:
        InputError: if weights are missing or of other sizes
    """
    with torch.device("meta"):
        module = HeadModule(spec, {key: tensor.shape for key, tensor in weights.items()})
    given = split(module, weights)
    shapes = {key: tensor.shape for key, tensor in module.state_dict().items()}
    if lacking := [key for key in shapes if key not in given]:
        raise InputError(
            f"The head {name} has no weights for {', '.join(map(published, lacking[:2]))}; "
            "download it again."
        )
    if strange := [key for key, shape in shapes.items() if given[key].shape != shape]:
        raise InputError(
            f"The head {name} has weights of other sizes than its config.json says "
            f"({published(strange[0])}); download it again."
        )
    module.load_state_dict({key: given[key] for key in shapes}, assign=True)
    for weight in module.parameters():
        weight.requires_grad_(False)
    del module.rotary
    module = module.to(target.device, target.dtype).eval()
    # Its frequencies are no weights: they stay in float32, or angles would be off by radians.
    module.rotary = LlamaRotaryEmbedding(spec.config).to(target.device)
    hasten(module)
    return module


def published(name: str) -> str:
    """The name of a weight as a file has it."""
    name = re.sub(r"\.(token|state)\.", ".", name)
    return re.sub(r"\.([qkvo]_proj|[qk]_norm)\.", r".self_attn.\1.", name)


def split(module: HeadModule, weights: Weights) -> dict[str, Any]:
    """Weights by the names of the module: those over a token and a state are taken apart."""
    own = {
        key.replace(".self_attn.", "."): tensor for key, tensor in weights.items() if key != "d2t"
    }
    for name, layer in module.named_modules():
        if isinstance(layer, Both) and f"{name}.weight" in own:
            weight, width = own.pop(f"{name}.weight"), layer.token.in_features
            own[f"{name}.token.weight"] = weight[:, :width].contiguous()
            own[f"{name}.state.weight"] = weight[:, width:].contiguous()
            if f"{name}.bias" in own:
                own[f"{name}.token.bias"] = own.pop(f"{name}.bias")
    return own
