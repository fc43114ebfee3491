"""Loading a pair of models from folders or the hub. Whatever goes wrong is an InputError of one sentence."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from decoders.assets import assets
from decoders.engine.pair import ModelPair, same_vocabulary
from decoders.errors import InputError, first_line

EMBEDDED = assets() / "stories"


def default_device() -> torch.device:
    """Where `load_pair` puts models by default: on CUDA if there is a device, else on the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def default_dtype(device: torch.device) -> torch.dtype:
    """What dtype "auto" means to `load_pair`: on CUDA bfloat16, or float16 below capability 8.0, where bfloat16 is very slow; else
    float32."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "auto",
    passes: str = "recorded",
    safetensors: bool | None = None,
) -> ModelPair:
    """Load a pair. Without arguments the embedded one; else a folder with `target/` and `draft/` in it, or one or two hub ids or folders.

    A hub id may name a revision: "org/model@revision". A model's own code is never run.

    device   default: `default_device()`
    dtype    a torch dtype or its name; "auto" is `default_dtype(device)`
    passes   "recorded"; "plain", which runs the models' own modules; or "compiled", which takes about a minute and is announced
    safetensors   True refuses weights in any other format; by default other formats are read, as plain tensors only, if there are no
                  safetensors
    Raises InputError if a model is missing or cannot be used, before weights are loaded if that is known by then.
    """
    device = _device(device)
    dtype = _dtype(dtype, device)
    names = _names(target, draft)
    configs = [_fetch(AutoConfig, name) for name in names]
    for name, config in zip(names, configs, strict=True):
        if config.is_encoder_decoder:
            raise InputError(f"{name} is an encoder-decoder model; load a causal language model.")
    tokenizers = [_fetch(AutoTokenizer, name) for name in names]
    if len(names) == 2:
        same_vocabulary(*(config.get_text_config().vocab_size for config in configs), tokenizers[0])
        _same_tokens(*tokenizers)
    models = [_weights(name, dtype=dtype, use_safetensors=safetensors).to(device) for name in names]
    return ModelPair(models[0], models[1] if len(models) == 2 else None, tokenizers[0], passes=passes)


def _names(target: str | Path | None, draft: str | Path | None) -> list[str]:
    """The hub ids or model folders of the target and, if there is one, the draft."""
    if target is None:
        target = EMBEDDED
        if not (EMBEDDED / "target" / "config.json").is_file():
            raise InputError(
                f"The embedded models are missing from {EMBEDDED}; train them with `make train`, or name a model to load."
            )
    folder = Path(target)
    if draft is None and (folder / "target").is_dir():
        target, draft = folder / "target", folder / "draft" if (folder / "draft").is_dir() else None
    names = [str(name) for name in (target, draft) if name is not None]
    for name in names:
        if name.startswith(("/", ".", "~")) and not Path(name).is_dir():
            raise InputError(f"There is no folder {name}; name one that holds a model, or a model of the hub.")
    return names


def _device(device: str | torch.device | None) -> torch.device:
    try:
        return torch.empty(0, device=device or default_device()).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"There is no device {str(device)!r} here ({first_line(error)}); take 'cpu'.") from error


def _dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    if dtype == "auto":
        return default_dtype(device)
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise InputError(f"dtype must be 'auto', 'float32', 'bfloat16', 'float16' or 'float64', not {dtype!r}.")
    return found


def _fetch(kind: Any, name: str, **options: Any) -> Any:
    if "@" in name and not Path(name).is_dir():
        name, options["revision"] = name.split("@", 1)
    try:
        return kind.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as error:  # files, network, JSON and safetensors each have their own errors
        raise InputError(f"{name} could not be loaded: {first_line(error)}") from error


def _weights(name: str, **options: Any) -> PreTrainedModel:
    """The model with all its weights: for those that a checkpoint lacks, transformers would draw random ones."""
    model, notes = _fetch(AutoModelForCausalLM, name, output_loading_info=True, **options)
    if missing := sorted(notes["missing_keys"]):
        more = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
        raise InputError(
            f"{name} has no weights for {', '.join(missing[:2])}{more}; load a folder or revision that holds the whole model."
        )
    return model


def _same_tokens(target: Any, draft: Any) -> None:
    words = [t.get_vocab() for t in (target, draft)]
    if words[0] != words[1]:
        by_id = [{i: w for w, i in vocabulary.items()} for vocabulary in words]
        differing = [i for i in sorted(by_id[0].keys() | by_id[1].keys()) if by_id[0].get(i) != by_id[1].get(i)][:3]
        shown = "; ".join(
            f"{i} is {by_id[0].get(i)!r} in the target and {by_id[1].get(i)!r} in the draft" for i in differing
        )
        raise InputError(
            f"Draft and target have different vocabularies, first at token {shown}; take a draft of the target's family."
        )
