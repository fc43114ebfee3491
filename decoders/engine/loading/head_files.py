"""The files of a published head: its config, and its weights with the names of this package."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers.utils import cached_file

from decoders.engine.loading.sources import located, said_in_one_sentence
from decoders.errors import InputError
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
        found = json.loads(file.read_text()) if file else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


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
    said = " ".join(map(str, [config.get("speculators_model_type"), *architectures(config)]))
    if re.search(r"eagle", said, re.IGNORECASE) or "draft_vocab_size" in config:
        return True
    if config.get("num_hidden_layers") != 1:
        return False
    return any(
        re.match(r"(model\.)?(fc|midlayer)\.", weight)
        for weight in shapes_of(name, safetensors, token)
    )


def spelled(name: str) -> str:
    """The name that this package uses for a weight of a published head."""
    for pattern, replacement in SPELLINGS:
        name = re.sub(pattern, replacement, name)
    return name


def shapes_of(
    name: str, safetensors: bool | None = True, token: str | bool | None = None
) -> dict[str, tuple[int, ...]]:
    """The shape of each weight as it stands in the files; {} if there is none that is read."""
    if files := _tensor_files(name, token):
        shapes: dict[str, tuple[int, ...]] = {}
        for file in files:
            with said_in_one_sentence(name), safe_open(file, "pt") as tensors:
                shapes |= {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
        return shapes
    if safetensors is True or _file(name, PICKLED, token) is None:
        return {}
    return {key: tuple(tensor.shape) for key, tensor in weights_of(name, None, token).items()}


def weights_of(name: str, safetensors: bool | None, token: str | bool | None = None) -> Weights:
    """The weights as they stand in the files; those not in safetensors as plain tensors."""
    if files := _tensor_files(name, token):
        weights: Weights = {}
        for file in files:
            with said_in_one_sentence(name), safe_open(file, "pt") as tensors:
                weights |= {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
        return weights
    if safetensors is not True and (pickled := _file(name, PICKLED, token)) is not None:
        with said_in_one_sentence(name):
            found = torch.load(pickled, map_location="cpu", weights_only=True)
        if not isinstance(found, dict) or not all(map(torch.is_tensor, found.values())):
            raise InputError(f"The head {name} has a broken {PICKLED}; download it again.")
        return found
    others = "model.safetensors" if safetensors else f"model.safetensors or {PICKLED}"
    raise InputError(
        f"The head {name} has no {others}; name a folder or revision that holds the whole head."
    )


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


def architectures(config: Mapping[str, Any]) -> list[str]:
    found = config.get("architectures")
    return found if isinstance(found, list) else []


def _file(name: str, file: str, token: str | bool | None) -> Path | None:
    name, where = located(name)
    with said_in_one_sentence(name):
        found = cached_file(
            name, file, token=token, _raise_exceptions_for_missing_entries=False, **where
        )
    return Path(found) if found else None
