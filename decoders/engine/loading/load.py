"""Loading a pair of models from folders or the hub; a failure is an InputError of one sentence.

Where they go and in which type of numbers is decided here too, and how large they will be.
"""

import logging
from collections.abc import Collection
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
)

from decoders import smollm2
from decoders.devices import default_device, default_dtype, device_of
from decoders.engine.fingerprint import trials_of, twin
from decoders.engine.loading.heads import is_head, load_head, load_mtp, weights_of
from decoders.engine.loading.pair import ModelPair, translation_between
from decoders.engine.loading.sources import (
    MERGE,
    MTP,
    OF_ADAPTERS,
    base_of,
    fetch,
    head_name,
    model_names,
    said_in_one_sentence,
)
from decoders.engine.models.packed import PASSES
from decoders.engine.weights import options
from decoders.errors import InputError, allowed, first_line, quoted, refuse
from decoders.inputs import is_gguf
from decoders.process import assets

DTYPES = torch.float32, torch.bfloat16, torch.float16, torch.float64


def placed(
    device: str | torch.device | None,
    draft_device: str | torch.device | None,
    device_map: str | None,
) -> list[tuple[torch.device, dict[str, Any]]]:
    """The devices of target and draft, and the options that read weights there."""
    at, draft_at = _device(device), _device(device if draft_device is None else draft_device)
    allowed("device_map", device_map, choices=("auto", None))
    refuse(
        (
            device_map and device is not None,
            "device_map='auto' chooses the devices; leave device out.",
        ),
    )
    draft_map = device_map if draft_device is None else None
    return [(at, _map(device_map, at)), (draft_at, _map(draft_map, draft_at))]


def _map(device_map: str | None, device: torch.device) -> dict[str, Any]:
    """The `device_map` that reads weights to all GPUs, or straight to one."""
    on_host = device_of(device).on_host
    return {} if on_host and device_map is None else {"device_map": device_map or {"": device}}


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


def number_type(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    if isinstance(dtype, str) and dtype == "auto":
        return default_dtype(device)
    resolved = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(resolved, torch.dtype) or resolved not in DTYPES:
        raise InputError(
            "dtype must be 'auto', 'float32', 'bfloat16', 'float16' or 'float64', not "
            f"{quoted(dtype)}."
        )
    return resolved


EMBEDDED = assets() / "stories"


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | None = None,
    *,
    head: str | Path | None = None,
    device: str | torch.device | None = None,
    draft_device: str | torch.device | None = None,
    device_map: str | None = None,
    dtype: str | torch.dtype = "auto",
    passes: str = "program",
    safetensors: bool | None = None,
    quantization: str | None = None,
    token: str | bool | None = None,
) -> ModelPair:
    """Load a pair of models.

    Without arguments this is the embedded pair; "smollm2" is SmolLM2-135M-Instruct with the head
    that comes with this package, where its weights are on this machine
    (`decoders.smollm2`). Otherwise a folder with `target/`, `draft/` and perhaps
    `head/` in it, or one or two hub ids or folders. A hub id may name a revision:
    "org/model@revision". A model's own code is never run. A folder may hold a LoRA adapter (with
    `peft` installed), whose base model is then loaded with it; the adapter's own tokenizer, chat
    template and generation config come before its base's. A base that target and draft share is in
    memory once.

    A GGUF file may stand for a folder (with the extra `gguf` installed): transformers makes plain
    weights of it, which then have `dtype` like any others.

    Args:
        target: folder, hub id or GGUF file of the target, or a folder with both models
        draft: folder, hub id or GGUF file of the draft, or the name of one in the target's folder,
            if it is not called "draft" there. It may be a head, a small module made for this target
            that reads its hidden states; the embedded target has one, "head". "mtp" is the layer
            for multi-token prediction that some targets bring along. Heads have the target's dtype
            and device, and are not quantised.
        head: folder or hub id of a head beside the draft, for decoders that take both
            (`draft="head"`), or the name of one in the target's folder
        device: where the models are; by default `default_device()`
        draft_device: where the draft is, if on another device
        device_map: "auto" spreads models over all GPUs as the package accelerate does, except for a
            draft that has its `draft_device`
        dtype: a torch dtype or its name; "auto" is `default_dtype(device)`
        passes: "program", which is one call of compiled kernels on a CPU and a CUDA graph on a GPU
            where a model can be run so; or "plain", which runs the models' own modules
        safetensors: True refuses weights in any other format but GGUF. By default other formats are
            read, as plain tensors only, if there are no safetensors.
        quantization: "int8" or, on CUDA, "int4": weights of linear layers are stored in this form
            (torchao), and products are computed in `dtype`. Quantised checkpoints are loaded by
            transformers without it.
        token: a token of the hub, for gated and private models; by default the machine's own;
            False for none

    Raises:
        InputError: if a model is missing or cannot be used; before weights are loaded if that is
            known by then
    """
    allowed("safetensors", safetensors, choices=(None, True, False))
    allowed("passes", passes, choices=PASSES)
    refuse(
        (
            target is None and not (EMBEDDED / "target" / "config.json").is_file(),
            f"The embedded models are missing from {EMBEDDED}; train them with `make train`, or "
            "name a model to load.",
        )
    )
    places = placed(device, draft_device, device_map)
    weights = {"dtype": number_type(dtype, places[0][0]), "use_safetensors": safetensors}
    source, title = EMBEDDED if target is None else target, None
    with ExitStack() as stack:
        if smollm2.is_smollm2(target):
            source, title = stack.enter_context(smollm2.source())
            if smollm2.HEAD.is_dir() and draft in (None, "head"):
                draft = smollm2.HEAD
        names = model_names(source, draft)
        drafting = None
        if len(names) == 2 and is_head(names[1], safetensors, token):
            drafting = names.pop()
        beside = head_name(source, draft, head)
        refuse(
            (
                is_head(names[0], safetensors, token),
                f"{names[0]} is a head, which drafts for a target; name the target, and this as "
                "its draft.",
            ),
            (
                head == MTP,
                "A layer that the target brings along takes the place of the draft; name it there.",
            ),
            (
                head is not None and not is_head(beside or "", safetensors, token),
                f"{beside} is no head; name it as the draft.",
            ),
            (
                (drafting or draft == MTP) and draft_device is not None,
                "A head runs where its target's states are; leave draft_device out.",
            ),
        )
        bases = [base_of(name) for name in names]
        configs = [fetch(AutoConfig, base, token=token) for base in bases]
        refuse(
            *(
                (
                    config.is_encoder_decoder,
                    f"{name} is an encoder-decoder model; load a causal language model.",
                )
                for name, config in zip(names, configs, strict=True)
            )
        )
        tokenizers = [
            _tokenizer(name, base, config, token)
            for name, base, config in zip(names, bases, configs, strict=True)
        ]
        if len(names) == 2:
            translation_between(*tokenizers, *(c.get_text_config().vocab_size for c in configs))
        models: list[Any] = _read(names, bases, configs, places, quantization, weights, token)
        if title is not None:
            models[0].config.name_or_path = title
        read = partial(
            load_head, target=models[0], safetensors=safetensors, passes=passes, token=token
        )
        # Of SmolLM2 alone: other models are tried at every start.
        known = None if title is None else trials_of(models[0], passes)
        models += [read(drafting)] if drafting else []
        models += [load_mtp(models[0])] if draft == MTP else []
        if names[0] != bases[0]:
            _end_as(models[0], names[0], tokenizers[0])
        pair = ModelPair(
            models[0],
            models[1] if len(models) == 2 else None,
            *tokenizers,
            passes=passes,
            trials=known,
        )
        if beside:
            try:
                pair.take(read(beside))
            except InputError as error:
                if head is not None:
                    raise
                # nobody has asked for it: it may be of another target that was here before
                logging.getLogger("decoders").warning("The pair has no head: %s", error)
        return pair


def _tokenizer(name: str, base: str, config: Any, token: str | bool | None) -> Any:
    """An adapter's own tokenizer, or its base's with the adapter's chat template if it has one."""
    if name != base and _has_tokenizer(name):
        return fetch(AutoTokenizer, name, config=config, token=token)
    tokenizer = fetch(AutoTokenizer, base, token=token)
    if name != base and (template := Path(name) / "chat_template.jinja").is_file():
        with said_in_one_sentence(name):
            tokenizer.chat_template = template.read_text(encoding="utf-8")
    return tokenizer


def _has_tokenizer(adapter: str) -> bool:
    files = "tokenizer.json", "tokenizer_config.json"
    return any((Path(adapter) / file).is_file() for file in files)


def _end_as(model: PreTrainedModel, adapter: str, tokenizer: Any) -> None:
    """Let texts end where those end that an adapter was trained on."""
    if (Path(adapter) / "generation_config.json").is_file():
        with said_in_one_sentence(adapter):
            model.generation_config = GenerationConfig.from_pretrained(adapter)
    elif _has_tokenizer(adapter) and (end := tokenizer.eos_token_id) is not None:
        config: Any = model.generation_config
        if end not in (ends if isinstance(ends := config.eos_token_id, list) else [ends]):
            config.eos_token_id = end


def _read(
    names: list[str],
    bases: list[str],
    configs: list[Any],
    places: list[tuple[torch.device, dict[str, Any]]],
    quantization: str | None,
    weights: dict[str, Any],
    token: str | bool | None,
) -> list[PreTrainedModel]:
    """The models; a base that both share is in memory once."""
    schemes = [
        options(quantization, base, config, place) | spread
        for base, config, (place, spread) in zip(bases, configs, places, strict=False)
    ]
    models: list[PreTrainedModel] = []
    loaded: dict[tuple, PreTrainedModel] = {}
    for name, base, scheme, (place, spread) in zip(names, bases, schemes, places, strict=False):
        key = base, place, str(spread)
        if key not in loaded:
            model = _weights(base, token=token, **weights, **scheme)
            loaded[key] = model if spread else model.to(place)
        models.append(loaded[key] if name == base else _adapted(loaded[key], name, **weights))
    return models


def _weights(name: str, **options: Any) -> Any:
    """The model with all its weights; transformers would draw random ones for missing ones."""
    model, notes = fetch(AutoModelForCausalLM, name, output_loading_info=True, **options)
    _whole(name, notes["missing_keys"])
    if is_gguf(name):
        model.config.name_or_path = name  # transformers knows its folder only
    return model


def _adapted(base: PreTrainedModel, name: str, **options: Any) -> PreTrainedModel:
    """The model with a folder's adapter and the weights of `base`, which stays as it is."""
    model = twin(base, base.config._attn_implementation)
    with said_in_one_sentence(name, OF_ADAPTERS):
        missing = set(model.load_adapter(name, **options).missing_keys)
    weights = dict(model.named_parameters(remove_duplicate=False))
    read = {id(weight) for key, weight in weights.items() if key not in missing}
    # One weight of tied layers stands for all.
    missing -= {key for key, weight in weights.items() if id(weight) in read}
    if any("magnitude" in key for key in missing):
        raise InputError(f"{name} is a DoRA adapter, which transformers does not load; {MERGE}.")
    _whole(name, missing)
    return model


def _whole(name: str, missing: Collection[str]) -> None:
    if missing:
        more = f" and {len(missing) - 2} more" if len(missing) > 2 else ""
        raise InputError(
            f"{name} has no weights for {', '.join(sorted(missing)[:2])}{more}; load a folder or "
            "revision that holds the whole model."
        )


def parameters(
    target: str | Path | None, draft: str | Path | None = None, token: str | bool | None = None
) -> int:
    """Count the parameters of the models with these names, without loading weights.

    Args:
        target: folder or hub id of the target, or a folder with both models; None for the embedded
            one
        draft: folder or hub id of the draft, or None
        token: see `load_pair`

    Returns:
        the sum over the models, without those of a type that cannot be built so, and without layers
            that a target brings along

    Raises:
        InputError: if there is no such model
    """
    total = 0
    if smollm2.is_smollm2(target):
        total, target, draft = smollm2.PARAMETERS, draft, None
        target = smollm2.HEAD if target in (None, "head") else target
    for name in model_names(EMBEDDED if target is None else target, draft):
        if is_head(name, token=token):
            total += sum(weight.numel() for weight in weights_of(name, True, token).values())
            continue
        config = fetch(AutoConfig, base_of(name), token=token)
        # Loading says why a type cannot be built.
        with suppress(Exception), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
            total += sum(weight.numel() for weight in model.parameters())
    return total
