"""Loading a pair of models from folders or the hub; a failure is an InputError of one sentence."""

from collections.abc import Collection
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from decoders.assets import assets
from decoders.devices import default_device, default_dtype, device_of
from decoders.engine.loading.pair import ModelPair, same_vocabulary, translation_between
from decoders.engine.loading.sources import base_of, fetch, model_names, said_in_one_sentence
from decoders.engine.models.packed import PASSES
from decoders.engine.weights.quantization import options
from decoders.engine.weights.twin import twin
from decoders.errors import InputError, first_line, quoted
from decoders.values import allowed

EMBEDDED = assets() / "stories"
DTYPES = torch.float32, torch.bfloat16, torch.float16, torch.float64


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    *,
    device: str | torch.device | None = None,
    draft_device: str | torch.device | None = None,
    device_map: str | None = None,
    dtype: str | torch.dtype = "auto",
    passes: str = "recorded",
    safetensors: bool | None = None,
    quantization: str | None = None,
) -> ModelPair:
    """Load a pair of models.

    Without arguments this is the embedded pair; otherwise a folder with `target/` and `draft/` in
    it, or one or two hub ids or folders. A hub id may name a revision: "org/model@revision". A
    model's own code is never run. A folder may hold a LoRA adapter (with `peft` installed), whose
    base model is then loaded with it. A base that target and draft share is in memory once.

    Args:
        target: folder or hub id of the target, or a folder with both models
        draft: folder or hub id of the draft, if it is not in the target's folder
        device: where the models are; by default `default_device()`
        draft_device: where the draft is, if on another device
        device_map: "auto" spreads models over all GPUs as the package accelerate does, except for a
            draft that has its `draft_device`
        dtype: a torch dtype or its name; "auto" is `default_dtype(device)`
        passes: "recorded"; "plain", which runs the models' own modules; "compiled", which takes
            about a minute and is announced; or, on CUDA and not yet tried on a device, "graphs"
        safetensors: True refuses weights in any other format. By default other formats are read, as
            plain tensors only, if there are no safetensors.
        quantization: "int8" or, on CUDA, "int4": weights of linear layers are stored in this form
            (torchao), and products are computed in `dtype`. Quantised checkpoints are loaded by
            transformers without it.

    Raises:
        InputError: if a model is missing or cannot be used; before weights are loaded if that is
            known by then
    """
    devices = [
        _device(place) for place in (device, device if draft_device is None else draft_device)
    ]
    dtype = _dtype(dtype, devices[0])
    allowed("safetensors", safetensors, choices=(None, True, False))
    allowed("passes", passes, choices=PASSES)
    _check_map(device_map, device)
    maps = [
        _map(device_map, devices[0]),
        _map(device_map if draft_device is None else None, devices[1]),
    ]
    names = model_names(_embedded() if target is None else target, draft)
    bases = [base_of(name) for name in names]
    configs = [fetch(AutoConfig, base) for base in bases]
    for name, config in zip(names, configs, strict=True):
        if config.is_encoder_decoder:
            raise InputError(f"{name} is an encoder-decoder model; load a causal language model.")
    tokenizers = [fetch(AutoTokenizer, base) for base in bases]
    if len(names) == 2:
        size, draft_size = (config.get_text_config().vocab_size for config in configs)
        if translation_between(tokenizers[0], tokenizers[1], size, draft_size) is None:
            same_vocabulary(size, draft_size, tokenizers[0])
    loads = []
    for base, config, place, spread in zip(bases, configs, devices, maps, strict=False):
        scheme = options(quantization, base, config, place) | spread
        loads.append(partial(_weights, base, dtype=dtype, use_safetensors=safetensors, **scheme))
    models: list[PreTrainedModel] = []
    loaded: dict[tuple, PreTrainedModel] = {}  # a base that both share is in memory once
    for name, base, place, spread, load in zip(names, bases, devices, maps, loads, strict=False):
        key = base, place, str(spread)
        if key not in loaded:
            loaded[key] = load() if spread else load().to(place)
        models.append(
            loaded[key] if name == base else _adapted(loaded[key], name, dtype, safetensors)
        )
    return ModelPair(models[0], models[1] if len(models) == 2 else None, *tokenizers, passes=passes)


def _embedded() -> Path:
    if not (EMBEDDED / "target" / "config.json").is_file():
        raise InputError(
            f"The embedded models are missing from {EMBEDDED}; train them with `make train`, or "
            "name a model to load."
        )
    return EMBEDDED


def _check_map(device_map: str | None, device: str | torch.device | None) -> None:
    allowed("device_map", device_map, choices=("auto", None))
    if device_map and device is not None:
        raise InputError("device_map='auto' chooses the devices; leave device out.")
    if device_map and find_spec("accelerate") is None:
        raise InputError(
            "device_map='auto' needs the package accelerate; install it with "
            "`pip install accelerate`."
        )


def _map(device_map: str | None, device: torch.device) -> dict[str, Any]:
    """The `device_map` that reads weights to all GPUs or straight to one, if accelerate is there.

    Without accelerate, weights go through this process's memory.
    """
    straight = not device_of(device).on_host and find_spec("accelerate") is not None
    return {"device_map": device_map or {"": device}} if device_map or straight else {}


def _device(device: str | torch.device | None) -> torch.device:
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device, type(None))):
        raise InputError(
            f"A device is named by text or a torch.device, not {quoted(device)}; take 'cpu'."
        )
    try:
        place = torch.empty(0, device=device or default_device()).device
    except (RuntimeError, AssertionError, ValueError, OverflowError) as error:
        raise InputError(
            f"There is no device {quoted(str(device))} here ({first_line(error)}); take 'cpu'."
        ) from error
    if place.type == "meta":
        raise InputError("The device 'meta' holds no weights; take 'cpu'.")
    return place


def _dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    if isinstance(dtype, str) and dtype == "auto":
        return default_dtype(device)
    resolved = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(resolved, torch.dtype) or resolved not in DTYPES:
        raise InputError(
            "dtype must be 'auto', 'float32', 'bfloat16', 'float16' or 'float64', not "
            f"{quoted(dtype)}."
        )
    return resolved


def _weights(name: str, **options: Any) -> Any:
    """The model with all its weights; transformers would draw random ones for missing ones."""
    model, notes = fetch(AutoModelForCausalLM, name, output_loading_info=True, **options)
    _whole(name, notes["missing_keys"])
    return model


def _adapted(
    base: PreTrainedModel, name: str, dtype: torch.dtype, safetensors: bool | None
) -> PreTrainedModel:
    """The model with a folder's adapter and the weights of `base`, which stays as it is."""
    model = twin(base, base.config._attn_implementation)
    with said_in_one_sentence(name):
        notes = model.load_adapter(name, dtype=dtype, use_safetensors=safetensors)
    _whole(name, notes.missing_keys)
    return model


def _whole(name: str, missing: Collection[str]) -> None:
    if missing:
        more = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
        raise InputError(
            f"{name} has no weights for {', '.join(sorted(missing)[:2])}{more}; load a folder or "
            "revision that holds the whole model."
        )
