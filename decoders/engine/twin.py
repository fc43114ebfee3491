"""Copies of a model with another attention and the same weights."""

import copy

import torch
from transformers import PreTrainedModel


def twin(model: PreTrainedModel, attention: str) -> PreTrainedModel:
    """A copy of the model that shares its weights and buffers, with its own config, which names another attention.

    So nothing is switched on and off around a pass, and the caller may use the model in another thread at the same time. Rotary
    frequencies that a pass of the caller's may change ("longrope", "dynamic") are not shared.
    """
    shared = {id(m._parameters): m._parameters for m in model.modules()}
    shared |= {id(m._buffers): m._buffers for m in model.modules() if not changes_frequencies(m)}
    other = copy.deepcopy(model, shared)
    other.config._attn_implementation = attention
    return other


def changes_frequencies(module: torch.nn.Module) -> bool:
    """Whether this is a rotary embedding that changes its frequencies for longer texts."""
    kinds = getattr(module, "rope_type", ())
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return any(kind == "longrope" or "dynamic" in kind for kind in kinds)
