"""The size of models that are not loaded (parameters)."""

import math
from contextlib import suppress
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decoders import smollm2
from decoders.engine.loading.head_files import is_head, shapes_of
from decoders.engine.loading.load import EMBEDDED
from decoders.engine.loading.sources import base_of, fetch, model_names


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
            total += sum(map(math.prod, shapes_of(name, token=token).values()))
            continue
        config = fetch(AutoConfig, base_of(name), token=token)
        # Loading says why a type cannot be built.
        with suppress(Exception), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
            total += sum(weight.numel() for weight in model.parameters())
    return total
