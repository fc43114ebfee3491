"""A head of the form of EAGLE-3 with random weights (drawn)."""

import math
from typing import Any

import torch
from transformers import LlamaConfig

from decoders.engine.heads.module import HeadModule, HeadSpec
from decoders.engine.models.loaded import positions_of
from decoders.training.recipe import Recipe


def config_of(recipe: Recipe, target: Any) -> LlamaConfig:
    """The config of the head's layer, for a target with this config."""
    return LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=1,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        head_dim=recipe.width // recipe.heads,
        rms_norm_eps=1e-6,
        max_position_embeddings=positions_of(target) or 2048,
    )


def drawn(spec: HeadSpec, target: Any, proposed: int) -> HeadModule:
    """A head whose weights are drawn from torch's global random source.

    Args:
        spec: what it is
        target: the config of its target
        proposed: how many tokens it proposes
    """
    width, own = target.hidden_size, spec.config.hidden_size
    layer = ["input_layernorm", "hidden_norm", "post_attention_layernorm"]
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (target.vocab_size, own),
        "fc.weight": (own, len(spec.reads) * width),
        "lm_head.weight": (proposed, own),
        "norm.weight": (own,),
    }
    shapes |= {f"fc_norm.{i}.weight": (width,) for i in range(len(spec.reads))}
    shapes |= {f"layers.0.{name}.weight": (own,) for name in layer}
    module = HeadModule(spec, shapes)
    for weight in module.parameters():
        if weight.ndim == 1:
            torch.nn.init.ones_(weight)
        else:
            torch.nn.init.normal_(weight, std=0.5 / math.sqrt(weight.shape[1]))
    return module
