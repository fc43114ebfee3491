"""A copy of a model with its weights (twin)."""

import copy
from types import MethodType
from typing import Any

import torch
from transformers import PreTrainedModel

from decoders.engine.patches import HOOKS, bound, forward_of, replacement


def twin(model: PreTrainedModel, attention: str) -> PreTrainedModel:
    """Copy a model with its own config, which names another attention, but share its weights.

    The copy shares the model's weights and buffers, and what its caller has put into it: hooks and
    functions. So nothing is switched on and off around a pass, and the caller may use the model in
    another thread at the same time. Rotary frequencies that a pass of the caller's may change
    ("longrope", "dynamic") are not shared.

    Args:
        model: the caller's model
        attention: the name of an attention in the registry of transformers
    """
    shared: dict[int, Any] = {}
    modules = list(model.modules())
    for module in modules:
        held = vars(module)
        shared[id(module._parameters)] = module._parameters
        if not changes_frequencies(module):
            shared[id(module._buffers)] = module._buffers
        whole = [hook for name in HOOKS for hook in held[name].values()]
        if (function := replacement(module)) is not None:
            whole.append(function)
        shared |= {id(each): each for each in whole}
        # Pruning and weight norm leave a weight that an operator has made, which has no copy.
        shared |= {
            id(value): value.detach()
            for value in held.values()
            if isinstance(value, torch.Tensor) and value.grad_fn is not None
        }
    other = copy.deepcopy(model, shared)
    other.config._attn_implementation = attention
    for module, copied in zip(modules, other.modules(), strict=True):
        forward = forward_of(module)
        if "forward" in vars(module) and forward is None:
            del vars(copied)["forward"]  # compiled, it would call the caller's module
        elif bound(forward, module):
            copied.forward = MethodType(forward.__func__, copied)
    return other.eval()


def changes_frequencies(module: torch.nn.Module) -> bool:
    kinds = getattr(module, "rope_type", ())
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return any(kind == "longrope" or "dynamic" in kind for kind in kinds)
