"""Reading heads as they are published: EAGLE-3 in two spellings, and EAGLE.

Which of the target's states a spelling means, and how, each reader below says.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from transformers import LlamaConfig, PreTrainedConfig, PreTrainedModel, Qwen3Config
from transformers.utils import cached_file

from decoders.engine.heads.head import Head
from decoders.engine.heads.module import HeadSpec
from decoders.engine.loading.sources import said_in_one_sentence
from decoders.engine.protocols import Layers
from decoders.errors import InputError, refuse

Weights = dict[str, torch.Tensor]
CONFIGS: dict[str, type[PreTrainedConfig]] = {"llama": LlamaConfig, "qwen3": Qwen3Config}
# Names of weights in published files, and those that this package uses for them.
SPELLINGS = (
    (r"^model\.", ""),
    (r"^midlayer\.", "layers.0."),  # SafeAILab/EAGLE and SGLang
    (r"^additional_layers\.(\d+)", lambda m: f"layers.{int(m[1]) + 1}"),  # SGLang
    (r"^transformer\.", "layers.0."),  # speculators, EAGLE
    (r"^fusion_fc\.", "fc."),  # the same
    (r"^pre_lm_head_layernorm\.", "norm."),  # the same
    (r"^embedding_layernorm\.", "embedding_norm."),  # the same
    (r"^aux_norm_(low|mid|high)", lambda m: f"fc_norm.{('low', 'mid', 'high').index(m[1])}"),
    (r"^draft_id_to_target_id$", "d2t"),
)
PICKLED = "pytorch_model.bin"
UNUSED = re.compile(r"^t2d$|rotary_emb\.|^verifier_")


def described(name: str) -> dict[str, Any]:
    """The config.json of a folder or hub model; {} if it has none that can be read."""
    file = _file(name, "config.json")
    try:
        found = json.loads(file.read_text()) if file else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def is_head(name: str) -> bool:
    """Whether a folder or hub model is a head.

    Configs of EAGLE often say only that it is a Llama of one layer; then its weights tell.
    """
    config = described(name)
    said = " ".join(map(str, [config.get("speculators_model_type"), *_architectures(config)]))
    if re.search(r"eagle", said, re.IGNORECASE) or "draft_vocab_size" in config:
        return True
    if config.get("num_hidden_layers") != 1:
        return False
    return any(re.match(r"(model\.)?(fc|midlayer)\.", weight) for weight in shapes_of(name))


def load_head(
    name: str, target: PreTrainedModel, safetensors: bool | None = None, passes: str = "recorded"
) -> Head:
    """Load a head that was made for a target.

    Args:
        name: folder or hub id, with or without "@revision"
        target: the target
        safetensors: True refuses weights in any other format
        passes: see `Head`

    Raises:
        InputError: if it cannot be read or does not fit the target
    """
    return Head(name, *read_head(name, target, safetensors), target, passes)


def read_head(
    name: str, target: PreTrainedModel, safetensors: bool | None = None
) -> tuple[HeadSpec, Weights]:
    """Read a head.

    Args:
        name: its folder or hub id
        target: the model that it was made for
        safetensors: True refuses weights in any other format

    Returns:
        what it is, and its weights with the names of this package; those that it shares with the
        target are the target's

    Raises:
        InputError: if it cannot be read or does not fit
    """
    config = described(name)
    weights = {
        spelled(key): tensor
        for key, tensor in _weights(name, safetensors).items()
        if not UNUSED.search(key)
    }
    inner = config.get("transformer_layer_config") or config
    said = str(config.get("speculators_model_type") or " ".join(_architectures(config)))
    three = "layers.0.hidden_norm.weight" in weights or re.search("eagle.?3", said, re.IGNORECASE)
    # A diff of Qwen3's config if the model type is left out (speculators, config.py).
    kind = inner.get("model_type", "qwen3" if inner is not config else "llama")
    refuse(
        (
            kind not in CONFIGS,
            f"The head {name} has layers of the type {kind}; those of llama and qwen3 are read.",
        ),
        (
            "embedding_norm.weight" in weights,
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
        # The state after the final norm (SafeAILab/EAGLE, model/ea_model.py, `outputs[0]`).
        else HeadSpec("EAGLE", made, (-1,))
    )
    _share(weights, target)
    _refuse_misfits(name, spec, weights, target)
    return spec, weights


def spelled(name: str) -> str:
    """The name that this package uses for a weight of a published head."""
    for pattern, replacement in SPELLINGS:
        name = re.sub(pattern, replacement, name)
    return name


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
        ids = list(config[key])
    elif inner.get(key):
        ids = [layer + 1 for layer in inner[key]]
    else:
        ids = [2, count // 2, count - 3]
    refuse(
        (
            not all(type(i) is int and 0 <= i <= count for i in ids),
            f"The head reads states of the layers {ids}, and the target has {count}; take a head "
            "made for this target.",
        )
    )
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


def _refuse_misfits(name: str, spec: HeadSpec, weights: Weights, target: PreTrainedModel) -> None:
    config: Any = target.config.get_text_config()
    width, own = config.hidden_size, spec.config.hidden_size
    other = "take a head made for this target"
    embedded, proposed = weights["embed_tokens.weight"], weights["lm_head.weight"]
    reads = len(spec.reads) * width
    fc = weights.get("fc.weight")
    expected = 2 * own if spec.kind == "EAGLE" else reads
    d2t = weights.get("d2t")
    refuse(
        (
            spec.config.num_hidden_layers < 1,
            f"The head {name} has no layer; download it again.",
        ),
        (
            spec.kind == "EAGLE" and own != width,
            f"The head {name} reads states of width {own}, and the target's have {width}; {other}.",
        ),
        (
            fc is not None and fc.shape[1] != expected,
            f"The head {name} reads {0 if fc is None else fc.shape[1]} numbers of a token, and the "
            f"target's {len(spec.reads)} states have {reads}; {other}.",
        ),
        (
            fc is None and reads != own,
            f"The head {name} has no weights for fc.weight, which joins the target's states; "
            "download it again.",
        ),
        (
            embedded.shape != (config.vocab_size, own),
            f"The head {name} embeds {embedded.shape[0]} tokens in width {embedded.shape[1]}, and "
            f"{config.vocab_size} in width {own} are needed; {other}.",
        ),
        (
            proposed.shape[1] != own,
            f"The head {name} has no output layer of its own, and the target's has another width; "
            "download it again.",
        ),
        (
            d2t is None and proposed.shape[0] != config.vocab_size,
            f"The head {name} proposes {proposed.shape[0]} tokens and does not say which (d2t); "
            f"{other}.",
        ),
        (
            d2t is not None and not _within(d2t, proposed.shape[0], config.vocab_size),
            f"The head {name} proposes tokens that the target does not have; {other}.",
        ),
    )


def _within(d2t: torch.Tensor, proposed: int, vocabulary: int) -> bool:
    if d2t.shape != (proposed,):
        return False
    ids = d2t + torch.arange(proposed)
    return bool((ids >= 0).all() and (ids < vocabulary).all())


def _architectures(config: Mapping[str, Any]) -> list[str]:
    found = config.get("architectures")
    return found if isinstance(found, list) else []


def _file(name: str, file: str) -> Path | None:
    revision: dict[str, Any] = {}
    if "@" in name and not Path(name).is_dir():
        name, revision["revision"] = name.split("@", 1)
    with said_in_one_sentence(name):
        found = cached_file(name, file, _raise_exceptions_for_missing_entries=False, **revision)
    return Path(found) if found else None


def shapes_of(name: str) -> dict[str, tuple[int, ...]]:
    """The shape of each weight as it stands in the file; {} if there is none."""
    if (file := _file(name, "model.safetensors")) is not None:
        with said_in_one_sentence(name), safe_open(file, "pt") as tensors:
            return {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
    if _file(name, PICKLED) is None:
        return {}
    return {key: tuple(tensor.shape) for key, tensor in _weights(name, None).items()}


def _weights(name: str, safetensors: bool | None) -> Weights:
    """The weights as they stand in the file; those that are not safetensors as plain tensors."""
    if (file := _file(name, "model.safetensors")) is not None:
        with said_in_one_sentence(name), safe_open(file, "pt") as tensors:
            return {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
    if safetensors is not True and (file := _file(name, PICKLED)) is not None:
        with said_in_one_sentence(name):
            return torch.load(file, map_location="cpu", weights_only=True)
    others = "model.safetensors" if safetensors else f"model.safetensors or {PICKLED}"
    raise InputError(f"The head {name} has no {others}; name a folder or revision that holds it.")
