"""The demands of transformers' `generate` on a decoding method, as options of `stream`.

Demands that decoders cannot meet are refused in one sentence.
"""

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache, GenerationConfig, LogitsProcessor
from transformers.generation import (
    GenerationMixin,
    LogitNormalization,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from decoders.errors import InputError, refuse
from decoders.integrations.fields import OUTPUTS, refusals
from decoders.penalties import TEXT_ALONE
from decoders.shapes import TokenId

# Inputs that `generate` itself adds; a decoder need not follow them.
# transformers 5.24 calls the cache `cache`.
CACHES = "cache", "past_key_values"
PREPARED = {"attention_mask", "position_ids", "use_cache", "logits_to_keep", *CACHES}
WARPERS = {
    TemperatureLogitsWarper: "temperature",
    TopKLogitsWarper: "top_k",
    TopPLogitsWarper: "top_p",
    MinPLogitsWarper: "min_p",
}
GENERATE = inspect.unwrap(GenerationMixin.generate).__code__


def withheld() -> tuple[Any, Any]:
    """The streamer and the assistant model of the `generate` that runs this.

    It passes neither on to a decoding method, so they are read from its frame. Otherwise a listener
    of the streamer would wait for ever.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not GENERATE:
        frame = frame.f_back
    held = frame.f_locals if frame else {}
    return held.get("streamer"), held.get("assistant_model")


@dataclass(frozen=True)
class Row:
    """One row of a batch.

    Attributes:
        given: the row's tokens with their padding
        prompt: the tokens without padding
    """

    given: torch.Tensor
    prompt: list[TokenId]


def rows(input_ids: torch.Tensor, inputs: Mapping[str, Any], config: GenerationConfig) -> list[Row]:
    """The prompts of a batch.

    Args:
        input_ids: token ids (rows, length)
        inputs: the other inputs of `generate`
        config: its generation config

    Raises:
        InputError: for inputs and outputs that decoders do not have
    """
    for sentence in refusals(config):
        raise InputError(sentence)
    asked = config.return_dict_in_generate
    output = next((name for name in OUTPUTS if asked and getattr(config, name)), "")
    others = [k for k, value in inputs.items() if value is not None and k not in PREPARED]
    cache = next((inputs[name] for name in CACHES if inputs.get(name) is not None), None)
    refuse(
        (
            others,
            f"Decoders read token ids alone, not {', '.join(others)}; leave it out, and give "
            "input_ids.",
        ),
        (
            input_ids.ndim != 2 or not input_ids.shape[1],
            "The prompt is empty; give generate input_ids with at least one token in each row.",
        ),
    )
    mask = inputs.get("attention_mask")
    kept = (torch.ones_like(input_ids) if mask is None else mask.to(input_ids.device)).bool()
    refuse(
        (
            output,
            f"Decoders have no {output.removeprefix('output_')} for each token; leave {output} "
            "out.",
        ),
        (
            cache is not None and holds_text(cache),
            "Decoders keep their own caches; call generate with the whole text and without "
            "cache or past_key_values.",
        ),
        (
            kept.shape != input_ids.shape
            or not kept[:, -1].all()
            or (kept[:, 1:] < kept[:, :-1]).any(),
            "The attention mask may leave out the left of a row only; pad on the left "
            "(padding_side='left').",
        ),
    )
    positions, counted = inputs.get("position_ids"), kept.long().cumsum(1) - 1
    if positions is not None and (positions.to(kept.device) != counted)[kept].any():
        raise InputError(
            "Decoders count positions from the first token of a prompt; leave position_ids out."
        )
    return [Row(row, row[keep].tolist()) for row, keep in zip(input_ids, kept, strict=True)]


def holds_text(cache: Cache) -> bool:
    """Whether a cache holds a text; one of states alone counts no tokens."""
    try:
        return cache.get_seq_length() > 0
    except ValueError:
        return cache.has_previous_state()


def without_padding(penalty: LogitsProcessor, prompts: Sequence[Row]) -> LogitsProcessor:
    """The processor for texts without their padding.

    `generate` tells the penalty for repetition how much padding there is.
    """
    ignored = getattr(penalty, "prompt_ignore_length", None)
    padding = [len(row.given) - len(row.prompt) for row in prompts]
    if isinstance(ignored, torch.Tensor) and ignored.tolist() == padding:
        penalty = copy.copy(penalty)
        vars(penalty)["prompt_ignore_length"] = None
    elif ignored is not None and (any(padding) or not isinstance(ignored, int)):
        raise InputError(
            "prompt_ignore_length counts padding, which decoders do not have; give each prompt "
            "alone, with a number."
        )
    return penalty


def sampling(
    config: GenerationConfig, processors: LogitsProcessorList, prompts: Sequence[Row]
) -> dict[str, Any]:
    """Temperature, top-k, top-p, min-p and penalties.

    Args:
        config: the generation config
        processors: the logits processors that `generate` has made
        prompts: the rows of the batch

    Raises:
        InputError: for any other processor, by name
    """
    penalties = [without_padding(p, prompts) for p in processors if type(p) in TEXT_ALONE]
    known = (*TEXT_ALONE, *WARPERS, LogitNormalization)
    if others := [type(p).__name__ for p in processors if type(p) not in known]:
        raise InputError(
            f"Decoders do not apply {', '.join(others)}; leave out the setting that asks for it, "
            "in the call or the generation config."
        )
    if not config.do_sample:
        return {"temperature": 0.0, "penalties": penalties}
    warpers = {WARPERS[type(p)]: p for p in processors if type(p) in WARPERS}
    order = [WARPERS[type(p)] for p in processors if type(p) in WARPERS]
    refuse(
        (
            any(getattr(p, "min_tokens_to_keep", 1) > 1 for p in warpers.values()),
            "Decoders keep at least one token, not min_tokens_to_keep of them; leave it out.",
        ),
        (
            order != [name for name in WARPERS.values() if name in order],
            "Decoders warp by temperature, then top_k, top_p and min_p, each once, and not by "
            f"{', '.join(order)}.",
        ),
    )
    return {"penalties": penalties} | {name: getattr(p, name) for name, p in warpers.items()}
