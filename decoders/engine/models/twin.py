"""A copy of a model with its weights (twin), and whether the two are still alike (traits)."""

import copy
from typing import Any

import torch
from transformers import PreTrainedModel

# The switches of a layer of the package `peft`.
SWITCHES = "_disable_adapters", "_active_adapter", "merged_adapters"


def twin(model: PreTrainedModel, attention: str) -> PreTrainedModel:
    """Copy a model with its own config, which names another attention, but share its weights.

    The copy shares the model's weights and buffers. So nothing is switched on and off around a
    pass, and the caller may use the model in another thread at the same time. Rotary frequencies
    that a pass of the caller's may change ("longrope", "dynamic") are not shared.

    Args:
        model: the caller's model
        attention: the name of an attention in the registry of transformers
    """
    shared: dict[int, Any] = {id(m._parameters): m._parameters for m in model.modules()}
    shared |= {id(m._buffers): m._buffers for m in model.modules() if not changes_frequencies(m)}
    other = copy.deepcopy(model, shared)
    other.config._attn_implementation = attention
    return other


def changes_frequencies(module: torch.nn.Module) -> bool:
    kinds = getattr(module, "rope_type", ())
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return any(kind == "longrope" or "dynamic" in kind for kind in kinds)


def traits(model: torch.nn.Module) -> list[Any]:
    """What two models have in common if they share their weights and have the same adapters on.

    For each module, this is the number of modules in it, its parameters, by identity, and its
    switches. An adapter adds modules.
    """
    found, modules = list[Any](), list[torch.nn.Module | None]([model])
    for module in modules:  # which grow, layer by layer
        if module is None:
            found.append(None)
        else:
            own = vars(module)
            inner = own["_modules"]
            found.append((len(inner), id(own["_parameters"])))
            for name in SWITCHES:
                if name in own:
                    found.append((name, own[name]))
            if inner:
                modules += inner.values()
    return found
