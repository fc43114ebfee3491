"""Heads as they are published: EAGLE-3 in two spellings, EAGLE, and this package's own.

Their files are read, and compared with the target that they are for. Which of the target's states a
spelling means, and how, each reader below says.
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
from decoders.engine.heads.module import HeadSpec, MtpLayers, filled
from decoders.engine.loading.sources import located, said_in_one_sentence
from decoders.engine.protocols import Layers
from decoders.errors import InputError, first_line, refuse
from decoders.inputs import is_gguf

Weights = dict[str, torch.Tensor]
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
PICKLED, INDEX = "pytorch_model.bin", "model.safetensors.index.json"
UNUSED = re.compile(r"^t2d$|rotary_emb\.|^verifier_")


def described(name: str, token: str | bool | None = None) -> dict[str, Any]:
    """The config.json of a folder or hub model; {} if it has none that can be read."""
    file = _file(name, "config.json", token)
    try:
        config = json.loads(file.read_text()) if file else {}
    except (ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def is_head(name: str, safetensors: bool | None = True, token: str | bool | None = None) -> bool:
    """Whether a folder or hub model is a head.

    Configs of EAGLE often say only that it is a Llama of one layer; then its weights tell.

    Args:
        name: the folder or hub id
        safetensors: None also looks into weights in another format
        token: see `load_pair`
    """
    if is_gguf(name):
        return False
    config = described(name, token)
    if re.search(r"eagle", kind_of(config), re.IGNORECASE) or "draft_vocab_size" in config:
        return True
    return config.get("num_hidden_layers") == 1 and any(
        re.match(r"(model\.)?(fc|midlayer)\.", weight)
        for weight in weights_of(name, safetensors, token)
    )


def kind_of(config: Mapping[str, Any]) -> str:
    """What a config says that a head is."""
    names = config.get("architectures")
    names = names if isinstance(names, list) else []
    return str(config.get("speculators_model_type") or " ".join(map(str, names)))


def spelled(name: str) -> str:
    """The name that this package uses for a weight of a published head."""
    for pattern, replacement in SPELLINGS:
        name = re.sub(pattern, replacement, name)
    return name


def weights_of(name: str, safetensors: bool | None, token: str | bool | None = None) -> Weights:
    """The weights as they stand in the files, where they may lie until used; {} without files.

    Those not in safetensors are read as plain tensors, unless `safetensors` is True.
    """
    weights: Weights = {}
    files = _tensor_files(name, token)
    for file in files:
        with said_in_one_sentence(name), safe_open(file, "pt") as tensors:
            weights |= {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
    if files or safetensors is True or (pickled := _file(name, PICKLED, token)) is None:
        return weights
    with said_in_one_sentence(name):
        weights = torch.load(pickled, map_location="cpu", weights_only=True)
    if not isinstance(weights, dict) or not all(map(torch.is_tensor, weights.values())):
        raise InputError(f"The head {name} has a broken {PICKLED}; download it again.")
    return weights


def _tensor_files(name: str, token: str | bool | None) -> list[Path]:
    """The files of safetensors: one, or those that an index names; [] if there are none."""
    if (whole := _file(name, "model.safetensors", token)) is not None:
        return [whole]
    if (index := _file(name, INDEX, token)) is None:
        return []
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        # Of this folder, whatever somebody has written into the index.
        parts = [_file(name, Path(each).name, token) for each in names]
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        parts = [None]
    if None in parts or not parts:
        raise InputError(
            f"The head {name} lacks files that its {INDEX} names, or that is broken; download it "
            "again."
        )
    return [part for part in parts if part is not None]


def _file(name: str, file: str, token: str | bool | None) -> Path | None:
    name, where = located(name)
    with said_in_one_sentence(name):
        path = cached_file(
            name, file, token=token, _raise_exceptions_for_missing_entries=False, **where
        )
    return Path(path) if path else None


NORMS = "embedding_norm.weight", "state_norm.weight"


def refuse_misfits(name: str, spec: HeadSpec, weights: Weights, target: PreTrainedModel) -> None:
    """Raise InputError unless a head's weights fit each other and the target.

    Args:
        name: the head's folder or hub id, for messages
        spec: what it is
        weights: its weights, with the target's where it has none of its own
        target: the target
    """
    config: Any = target.config.get_text_config()
    width, own = config.hidden_size, spec.config.hidden_size
    other = "take a head made for this target"
    embedded, proposed = weights["embed_tokens.weight"], weights["lm_head.weight"]
    reads = len(spec.reads) * width
    fc = weights.get("fc.weight")
    norms = [weights[key] for key in weights if re.match(r"fc_norm\.\d+\.weight", key)]
    joined = weights.get("input_norm.weight")
    expected = 2 * own if spec.kind == "EAGLE" else reads
    d2t = weights.get("d2t")
    refuse(
        (
            spec.config.num_hidden_layers < 1,
            f"The head {name} has no layer; download it again.",
        ),
        (
            spec.kind == "EAGLE" and "mix.weight" not in weights and own != width,
            f"The head {name} reads states of width {own}, and the target's have {width}; {other}.",
        ),
        (
            fc is not None and fc.shape[1] != expected,
            f"The head {name} reads {0 if fc is None else fc.shape[1]} numbers of a token, and the "
            f"target's states have {reads}; {other}.",
        ),
        (
            len(norms) not in (0, len(spec.reads))
            or any(norm.shape != (width,) for norm in norms)
            or (joined is not None and joined.shape != (reads,)),
            f"The head {name} norms the target's states in other numbers or widths than it reads "
            f"({len(spec.reads)} of width {width}); {other}.",
        ),
        (
            "mix.weight" in weights and weights["mix.weight"].shape != (own, reads),
            f"The head {name} mixes states of other widths than the target's {len(spec.reads)} of "
            f"width {width}; {other}.",
        ),
        (
            any(weights[key].shape != (own,) for key in NORMS if key in weights),
            f"The head {name} norms embeddings or states of another width than its own {own}; "
            "download it again.",
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
    if d2t.shape != (proposed,) or d2t.is_floating_point():
        return False
    ids = d2t + torch.arange(proposed)
    return bool((ids >= 0).all() and (ids < vocabulary).all())


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
    refuse(
        (
            "@" in name and not Path(name).is_dir(),
            f"{name} names a revision, and layers for multi-token prediction are read from the "
            "newest one; leave it out, or name a folder.",
        ),
        (
            not getattr(target.config.get_text_config(), "num_mtp_layers", None),
            f"{name} has no layers for multi-token prediction that the installed transformers "
            "loads; name a draft model or a head.",
        ),
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
    stored = weights_of(name, safetensors, token)
    others = "" if safetensors else f" or {PICKLED}"
    weights = {spelled(key): value for key, value in stored.items() if not UNUSED.search(key)}
    inner = config.get("transformer_layer_config") or config
    three = "layers.0.hidden_norm.weight" in weights or re.search(
        "eagle.?3", kind_of(config), re.IGNORECASE
    )
    # A diff of Qwen3's config if the model type is left out (speculators, config.py).
    kind = inner.get("model_type", "qwen3" if inner is not config else "llama")
    refuse(
        (
            not stored,
            f"The head {name} has no model.safetensors{others}; name a folder or revision that "
            "holds the whole head.",
        ),
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
        head_config = CONFIGS[kind](**options | {"num_hidden_layers": layers})
    spec = (
        HeadSpec(
            "EAGLE-3",
            head_config,
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
            "EAGLE", head_config, layers_read(config, target) if "mix.weight" in weights else (-1,)
        )
    )
    # What a head has none of its own of is the target's.
    for key, layer in (
        ("embed_tokens.weight", target.get_input_embeddings()),
        ("lm_head.weight", target.get_output_embeddings()),
    ):
        if key not in weights and layer is not None:
            weights[key] = cast(torch.Tensor, layer.weight).detach()
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
    ids = config.get(key) or inner.get(key) or [2, count // 2, count - 3]
    later = 1 if inner.get(key) and not config.get(key) else 0
    refuse(
        (
            not all(type(i) is int and 0 <= i + later <= count for i in ids),
            f"The head reads states of the layers {ids}, and the target has {count}; take a head "
            "made for this target.",
        )
    )
    return tuple(sorted({i + later for i in ids}))


def _switch(config: Mapping[str, Any], name: str, otherwise: bool) -> bool:
    """A switch of EAGLE-3.

    Without `norm_before_residual` vLLM takes True for a head of speculators, else False
    (transformers_utils/configs/speculators/algos.py, `update_eagle3`).
    """
    inner = config.get("eagle_config") or {}
    return bool(config.get(name, inner.get(name, otherwise)))
