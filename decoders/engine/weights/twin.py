"""Copies of a model with another attention and the same weights (twin)."""

import copy
from itertools import zip_longest
from typing import Any

import torch
from transformers import PreTrainedModel

from decoders.errors import InputError


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
    """Whether this is a rotary embedding that changes its frequencies for longer texts."""
    kinds = getattr(module, "rope_type", ())
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return any(kind == "longrope" or "dynamic" in kind for kind in kinds)


def refuse_changes(model: PreTrainedModel, other: PreTrainedModel, name: str) -> None:
    """Raise InputError if a model's modules are no longer those whose weights its twin shares.

    Args:
        model: the caller's model
        other: its twin
        name: the model's name, for the message
    """
    pairs = zip_longest(other.modules(), model.modules())
    if not all(same(a, b) for a, b in pairs):
        raise InputError(
            f"The {name} has had modules replaced or adapters switched since its pair was made; "
            "make a new ModelPair of it."
        )


def same(module: torch.nn.Module | None, other: torch.nn.Module | None) -> bool:
    """Whether two modules share their weights and have the same adapters switched on.

    Adapters add modules without a counterpart (None), which count as different.
    """
    if module is None or other is None:
        return False
    return module._parameters is other._parameters and adapters(module) == adapters(other)


def adapters(module: torch.nn.Module) -> list[object]:
    """The state of a layer's switches, if it is one of the package `peft`."""
    return [
        vars(module).get(name)
        for name in ("_disable_adapters", "_active_adapter", "merged_adapters")
    ]
