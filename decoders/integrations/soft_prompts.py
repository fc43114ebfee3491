"""Whether `generate` would put something before a prompt that decoders do not read."""

from types import MethodType
from typing import Any

import torch
from transformers import PreTrainedModel

from decoders.errors import InputError


def refuse_soft_prompt(model: PreTrainedModel, input_ids: torch.Tensor) -> None:
    """Raise InputError if the model's first inputs are not the token ids alone.

    peft puts another `prepare_inputs_for_generation` into a model while it generates with a soft
    prompt (prompt tuning, prefix tuning, P-tuning). What that makes of the prompt is compared with
    what the model's class makes of it.

    Args:
        model: the model that `generate` runs
        input_ids: the prompts, (rows, length)
    """
    name = "prepare_inputs_for_generation"
    function: Any = vars(model).get(name)
    usual = MethodType(getattr(type(model), name), model)
    if function is None or function == usual:
        return
    options = {"attention_mask": torch.ones_like(input_ids), "is_first_iteration": True}
    try:
        with torch.inference_mode():
            found, expected = (make(input_ids, **options) for make in (function, usual))
        alike = found.keys() == expected.keys() and all(
            same(found[key], value) for key, value in expected.items()
        )
    except Exception:  # it may do anything
        alike = False
    if not alike:
        owner = type(getattr(function, "__self__", None)).__name__
        by = f" by {owner}" if isinstance(function, MethodType) else ""
        raise InputError(
            f"The model's {name} is replaced{by}, which puts more into a pass than the prompt's "
            "tokens (peft's soft prompts do), and decoders read token ids alone; leave "
            "custom_generate out, or take an adapter of another kind, as LoRA."
        )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return one is other or bool(one == other)
