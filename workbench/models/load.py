"""Loads a pair if that is allowed here and the pair fits; otherwise says what to do."""

import os
from typing import cast

import torch
from huggingface_hub.errors import GatedRepoError

from decoders import InputError, ModelPair, default_device, default_dtype, load_pair, parameters
from decoders.errors import quoted
from workbench.models.memory import must_fit
from workbench.models.presets import PAIRS, PairChoice, PairPreset

# Otherwise transformers asks a service of the hub to convert pickled weights, and loads the result
# instead of the named files.
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
# Bytes per parameter of models of a billion parameters and more, with scales and with embeddings
# that are not quantised.
QUANTISED_BYTES = {"int8": 1.25, "int4": 0.75}


def load(choice: PairChoice, custom_allowed: bool = True) -> ModelPair:
    """The pair of a choice.

    A model's own code is never run, and a pair that is not a preset is read from safetensors only.

    Args:
        choice: the choice
        custom_allowed: whether the pair may be other than a preset

    Raises:
        InputError: in one sentence, if the pair is not a preset and `custom_allowed` is false, if
            it does not fit in memory, if its owner must be asked first, if there is no such model,
            or if it cannot be run
    """
    device = default_device() if choice.device == "auto" else _device(choice.device)
    dtype = default_dtype(device) if choice.dtype == "auto" else choice.dtype
    preset = _preset(choice)
    if preset is None and not custom_allowed:
        raise InputError(
            "Only the listed model pairs may be loaded on this Space; its owner can set "
            "ALLOW_CUSTOM_MODELS=1."
        )
    kind = getattr(torch, str(dtype).removeprefix("torch."), None)
    try:
        if isinstance(kind, torch.dtype):
            _must_fit(choice, preset, device, kind)
        return load_pair(
            choice.target,
            choice.draft,
            device=device,
            dtype=dtype,
            safetensors=None if preset else True,
            quantization=choice.quantization,
        )
    except (MemoryError, torch.OutOfMemoryError):
        raise InputError(
            f"{choice.title} does not fit in the memory of {device}; take a smaller pair or "
            "another dtype."
        ) from None
    except InputError as error:
        if not _is_gated(error):
            raise
        raise InputError(
            f"{choice.title} is gated: accept its licence on its page at huggingface.co, and give "
            "the token of your account with `hf auth login` or in the variable HF_TOKEN (on a "
            "Space: Settings, Secrets)."
        ) from error


def _preset(choice: PairChoice) -> PairPreset | None:
    return next(
        (
            p
            for p in PAIRS.values()
            if (p.target_source, p.draft_source) == (choice.target, choice.draft)
        ),
        None,
    )


def _must_fit(
    choice: PairChoice, preset: PairPreset | None, device: torch.device, dtype: torch.dtype
) -> None:
    """Refuse a pair whose weights, quantised if that is chosen, do not fit."""
    target = cast(str, choice.target)  # only the embedded pair's is None
    size = (
        preset.weight_bytes(dtype) if preset else parameters(target, choice.draft) * dtype.itemsize
    )
    shrunk = min(
        1.0, QUANTISED_BYTES.get(choice.quantization or "", dtype.itemsize) / dtype.itemsize
    )
    must_fit(choice.title, round(size * shrunk), device, dtype)


def _device(name: str) -> torch.device:
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError):
        raise InputError(f"There is no device {quoted(name)} here; take 'auto' or 'cpu'.") from None


def _is_gated(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, GatedRepoError):
        error = error.__cause__ or error.__context__
    return error is not None
