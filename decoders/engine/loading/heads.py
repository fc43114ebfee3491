"""Reading heads as they are published: EAGLE-3 in two spellings, EAGLE, and this package's own.

Which of the target's states a spelling means, and how, each reader below says.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from transformers import LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen3Config

from decoders.engine.heads.head import Head
from decoders.engine.heads.module import HeadSpec, MtpLayers, filled
from decoders.engine.loading.head_files import (
    UNUSED,
    Weights,
    architectures,
    described,
    spelled,
    weights_of,
)
from decoders.engine.loading.head_fits import refuse_misfits
from decoders.engine.loading.sources import said_in_one_sentence
from decoders.engine.protocols import Layers
from decoders.errors import InputError, first_line, refuse

CONFIGS: dict[str, type[PreTrainedConfig]] = {"llama": LlamaConfig, "qwen3": Qwen3Config}


def load_head(
    name: str,
    target: PreTrainedModel,
    safetensors: bool | None = None,
    passes: str = "program",
    token: str | bool | None = None,
) -> Head:
    """Load a head that was made for a target.

    Args:
        name: folder or hub id, with or without "@revision"
        target: the target
        safetensors: True refuses weights in any other format
        passes: see `Head`
        token: see `load_pair`

    Raises:
        InputError: if it cannot be read or does not fit the target
    """
    try:
        spec, weights = read_head(name, target, safetensors, token)
        module = filled(name, spec, weights, target)
    except (InputError, MemoryError, torch.OutOfMemoryError):
        raise
    # Whatever somebody has written into a config or a file of weights.
    except Exception as error:
        raise InputError(
            f"The head {name} cannot be used: its files are not those of a head "
            f"({type(error).__name__}: {first_line(error)}); download it again, or name another."
        ) from error
    d2t = weights.get("d2t")
    ids = None if d2t is None else d2t.long() + torch.arange(len(d2t))
    return Head(name, module, target, ids, passes)


def load_mtp(target: PreTrainedModel) -> Head:
    """Load the layer for multi-token prediction that a target brings along.

    Args:
        target: the target, loaded from a folder or the hub

    Raises:
        InputError: if it has none, or the installed transformers does not load it
    """
    name = target.config.name_or_path or type(target).__name__
    if "@" in name and not Path(name).is_dir():
        raise InputError(
            f"{name} names a revision, and layers for multi-token prediction are read from the "
            "newest one; leave it out, or name a folder."
        )
    if not getattr(target.config.get_text_config(), "num_mtp_layers", None):
        raise InputError(
            f"{name} has no layers for multi-token prediction that the installed transformers "
            "loads; name a draft model or a head."
        )
    try:
        # Newer than other parts of transformers that are used here.
        from transformers.modeling_layers import MtpModel

        return Head(
            "mtp", MtpLayers(MtpModel.from_pretrained(target), target), target, None, "plain"
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise
    # What a checkpoint lacks, or a type of model that is not foreseen, ends in any error.
    except Exception as error:
        raise InputError(
            f"The layers for multi-token prediction of {name} cannot be used "
            f"({first_line(error)}); name a draft model or a head."
        ) from error


def read_head(
    name: str,
    target: PreTrainedModel,
    safetensors: bool | None = None,
    token: str | bool | None = None,
) -> tuple[HeadSpec, Weights]:
    """Read a head.

    Args:
        name: its folder or hub id
        target: the model that it was made for
        safetensors: True refuses weights in any other format
        token: see `load_pair`

    Returns:
        what it is, and its weights with the names of this package; those that it shares with the
        target are the target's

    Raises:
        InputError: if it cannot be read or does not fit
    """
    config = described(name, token)
    weights = {
        spelled(key): tensor
        for key, tensor in weights_of(name, safetensors, token).items()
        if not UNUSED.search(key)
    }
    inner = config.get("transformer_layer_config") or config
    said = str(config.get("speculators_model_type") or " ".join(architectures(config)))
    three = "layers.0.hidden_norm.weight" in weights or re.search("eagle.?3", said, re.IGNORECASE)
    # A diff of Qwen3's config if the model type is left out (speculators, config.py).
    kind = inner.get("model_type", "qwen3" if inner is not config else "llama")
    refuse(
        (
            kind not in CONFIGS,
            f"The head {name} has layers of the type {kind}; those of llama and qwen3 are read.",
        ),
        (
            "embedding_norm.weight" in weights and "mix.weight" not in weights,
            f"The head {name} norms embeddings as HASS does, which is not read here; take one "
            "without.",
        ),
    )
    layers = 1 + max(
        (int(m[1]) for key in weights if (m := re.match(r"layers\.(\d+)\.", key))), default=-1
    )
    options = {k: v for k, v in inner.items() if k not in ("model_type", "architectures")}
    with said_in_one_sentence(name):
        made = CONFIGS[kind](**options | {"num_hidden_layers": layers})
    spec = (
        HeadSpec(
            "EAGLE-3",
            made,
            layers_read(config, target),
            residual_normed=_switch(
                config, "norm_before_residual", "speculators_version" in config
            ),
            next_normed=_switch(config, "norm_output", False),
        )
        if three
        # The state after the final norm (SafeAILab/EAGLE, model/ea_model.py, `outputs[0]`), or
        # those that a head of this package's trainer mixes.
        else HeadSpec(
            "EAGLE", made, layers_read(config, target) if "mix.weight" in weights else (-1,)
        )
    )
    _share(weights, target)
    refuse_misfits(name, spec, weights, target)
    return spec, weights


def layers_read(config: Mapping[str, Any], target: PreTrainedModel) -> Layers:
    """The target's layers whose states an EAGLE-3 head reads, numbered as in transformers.

    Without ids they are the states that enter layers 2, L // 2 and L - 3 (SafeAILab/EAGLE,
    model/modeling_llama_kv.py; vLLM, models/llama.py and SGLang, models/llama.py alike). Ids that
    stand in the config itself are the states that enter those layers (vLLM,
    transformers_utils/configs/speculators/algos.py); ids in `eagle_config` are the states that
    leave them (SGLang, models/llama.py, `set_eagle3_layers_to_capture`: `val + 1`).
    """
    count = target.config.get_text_config().num_hidden_layers
    key, inner = "eagle_aux_hidden_state_layer_ids", config.get("eagle_config") or {}
    if config.get(key):
        ids, later = list(config[key]), 0
    elif inner.get(key):
        ids, later = list(inner[key]), 1
    else:
        ids, later = [2, count // 2, count - 3], 0
    refuse(
        (
            not all(type(i) is int and 0 <= i + later <= count for i in ids),
            f"The head reads states of the layers {ids}, and the target has {count}; take a head "
            "made for this target.",
        )
    )
    ids = [i + later for i in ids]
    return tuple(sorted(set(ids)))


def _switch(config: Mapping[str, Any], name: str, otherwise: bool) -> bool:
    """A switch of EAGLE-3.

    Without `norm_before_residual` vLLM takes True for a head of speculators, else False
    (transformers_utils/configs/speculators/algos.py, `update_eagle3`).
    """
    inner = config.get("eagle_config") or {}
    return bool(config.get(name, inner.get(name, otherwise)))


def _share(weights: Weights, target: PreTrainedModel) -> None:
    """Add the target's embeddings and output layer where the head has none of its own."""
    for name, layer in (
        ("embed_tokens.weight", target.get_input_embeddings()),
        ("lm_head.weight", target.get_output_embeddings()),
    ):
        if name not in weights and layer is not None:
            weights[name] = cast(torch.Tensor, layer.weight).detach()
