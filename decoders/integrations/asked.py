"""What transformers' `generate` asks of a decoding method, in our words; what decoders cannot do is refused in one sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation import (
    EosTokenCriteria,
    LogitNormalization,
    LogitsProcessorList,
    MaxLengthCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from decoders.errors import InputError
from decoders.penalties import TEXT_ALONE
from decoders.shapes import TokenId

# What `generate` itself adds to the inputs, and says nothing that a decoder would have to follow.
PREPARED = {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep"}
WARPERS = {TemperatureLogitsWarper: "temperature", TopKLogitsWarper: "top_k", TopPLogitsWarper: "top_p"}
OUTPUTS = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


@dataclass(frozen=True)
class Row:
    """One row of a batch: as it was given, and the prompt in it without its padding."""

    given: torch.Tensor
    prompt: list[TokenId]

    def followed_by(self, tokens: list[TokenId]) -> torch.Tensor:
        """(1, given + tokens), as stopping criteria see it."""
        return torch.cat([self.given, self.given.new_tensor(tokens)])[None]


def rows(input_ids: torch.Tensor, inputs: Mapping[str, Any], config: GenerationConfig) -> list[Row]:
    """The prompts of a batch (rows, length). Raises InputError for inputs and outputs that decoders do not have."""
    if (config.num_beams or 1) > 1 or (config.num_return_sequences or 1) > 1:
        raise InputError(
            "num_beams and num_return_sequences repeat the rows of the batch, which a decoder would decode each alone; leave them out and "
            'give beams to the decoder, as in decoders.hf("beam_search", beams=4), or repeat the prompt yourself.'
        )
    if outputs := [name for name in OUTPUTS if config.return_dict_in_generate and getattr(config, name)]:
        raise InputError(
            f"Decoders have no {outputs[0].removeprefix('output_')} for each token; leave {outputs[0]} out."
        )
    if others := [name for name, value in inputs.items() if value is not None and name not in PREPARED]:
        raise InputError(f"Decoders read token ids alone, not {', '.join(others)}; leave it out.")
    cache = inputs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise InputError(
            "Decoders keep caches of their own; call generate with the whole text and without past_key_values."
        )
    mask = inputs.get("attention_mask")
    kept = torch.ones_like(input_ids, dtype=torch.bool) if mask is None else mask.bool().to(input_ids.device)
    if kept.shape != input_ids.shape or not kept[:, -1].all() or (kept[:, 1:] < kept[:, :-1]).any():
        raise InputError(
            "The attention mask may leave out the left of a row only; pad on the left (padding_side='left')."
        )
    _plain_positions(inputs.get("position_ids"), kept)
    return [Row(row, row[keep].tolist()) for row, keep in zip(input_ids, kept, strict=True)]


def _plain_positions(positions: torch.Tensor | None, kept: torch.Tensor) -> None:
    counted = kept.long().cumsum(1) - 1
    if positions is not None and (positions.to(kept.device).expand_as(counted)[kept] != counted[kept]).any():
        raise InputError("Decoders count positions from the first token of a prompt; leave position_ids out.")


def sampling(config: GenerationConfig, processors: LogitsProcessorList) -> dict[str, Any]:
    """Temperature, top-k, top-p and penalties. Raises InputError for any other processor, by name."""
    penalties = [p for p in processors if type(p) in TEXT_ALONE]
    others = [type(p).__name__ for p in processors if type(p) not in (*TEXT_ALONE, *WARPERS, LogitNormalization)]
    if others:
        raise InputError(
            f"Decoders do not apply {', '.join(others)}; leave out what asks for it, in the call or the generation config."
        )
    if not config.do_sample:
        return {"temperature": 0.0, "penalties": penalties}
    warpers = [p for p in processors if type(p) in WARPERS]
    if any(getattr(p, "min_tokens_to_keep", 1) > 1 for p in warpers):
        raise InputError("Decoders keep at least one token, not min_tokens_to_keep of them; leave it out.")
    order = [WARPERS[type(p)] for p in warpers]
    if order != [name for name in WARPERS.values() if name in order]:
        raise InputError(
            f"Decoders warp by temperature, then top_k, then top_p, each once, and not by {', '.join(order)}."
        )
    return {"penalties": penalties} | {name: getattr(p, name) for name, p in zip(order, warpers, strict=True)}


def stopping(criteria: StoppingCriteriaList) -> tuple[frozenset[TokenId], StoppingCriteriaList]:
    """The ids that end a text, and the criteria to be asked after every token."""
    ends = {int(i) for c in criteria if isinstance(c, EosTokenCriteria) for i in c.eos_token_id.flatten()}
    others = [c for c in criteria if not isinstance(c, (EosTokenCriteria, MaxLengthCriteria))]
    return frozenset(ends), StoppingCriteriaList(others)
