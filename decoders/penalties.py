"""Changes to logits that a generation config asks for and that depend on the text alone.

They are processors of transformers, applied at each node of a tree to the text that ends there.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation import (
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from decoders.errors import InputError
from decoders.shapes import Logits, Penalties, TokenId

# Settings by which `generate` of transformers would draw and change logits.
SAMPLED = ("temperature", "top_k", "top_p", "min_p")
MODELLED = (
    "repetition_penalty",
    "no_repeat_ngram_size",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
)
OTHERS = (
    "encoder_repetition_penalty", "encoder_no_repeat_ngram_size", "sequence_bias",
    "forced_bos_token_id", "forced_eos_token_id", "min_length", "min_new_tokens",
    "exponential_decay_length_penalty", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "guidance_scale", "watermarking_config",
)  # fmt: skip
NEUTRAL = {
    "temperature": 1.0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "typical_p": 1.0,
    "guidance_scale": 1.0,
}
# The processors that need nothing but the text so far.
TEXT_ALONE = (
    RepetitionPenaltyLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    NoBadWordsLogitsProcessor,
    SuppressTokensLogitsProcessor,
)


def settings_of(config: GenerationConfig | None, names: Sequence[str]) -> dict[str, Any]:
    """The settings in `names` that a generation config asks for, with their values."""
    return {
        name: value
        for name in names
        if (value := getattr(config, name, None)) and value != NEUTRAL.get(name)
    }


def said(config: GenerationConfig | None) -> list[str]:
    """Clauses for people: settings that decoders apply only on request, and those they ignore."""
    sampling = SAMPLED if config is not None and config.do_sample else ()
    return [
        f"{', '.join(f'{name}={value}' for name, value in settings.items())}, {words}"
        for names, words in (
            (
                sampling,
                "which `decoders.generate` and `decoders.stream` take from their arguments alone",
            ),
            (MODELLED, "which decoders apply with penalties=True"),
            (OTHERS, "which decoders leave out"),
        )
        if (settings := settings_of(config, names))
    ]


def processors(config: GenerationConfig | None, prompt_length: int) -> LogitsProcessorList:
    """The processors that a generation config asks for, of MODELLED, in the order of `generate`.

    Args:
        prompt_length: tokens of the prompt

    Raises:
        InputError: if transformers refuses a setting
    """
    given = settings_of(config, MODELLED)
    ends = config.eos_token_id if config else None
    makers: dict[str, Callable[..., Any]] = {
        "repetition_penalty": RepetitionPenaltyLogitsProcessor,
        "no_repeat_ngram_size": NoRepeatNGramLogitsProcessor,
        "bad_words_ids": lambda ids: NoBadWordsLogitsProcessor(ids, ends),
        "suppress_tokens": lambda ids: SuppressTokensLogitsProcessor(ids, "cpu"),
        "begin_suppress_tokens": lambda ids: SuppressTokensAtBeginLogitsProcessor(
            ids, prompt_length, "cpu"
        ),
    }
    try:
        return LogitsProcessorList(
            [make(given[name]) for name, make in makers.items() if name in given]
        )
    except (ValueError, TypeError) as error:
        raise InputError(
            f"The target's generation config cannot be applied ({error}); mend it or leave "
            "penalties out."
        ) from None


def on_host(processor: LogitsProcessor) -> LogitsProcessor:
    """The same processor with its tensors on the CPU, where rows are brought to be changed."""
    other = copy.copy(processor)
    vars(other).update(
        {
            name: value.cpu()
            for name, value in vars(other).items()
            if isinstance(value, torch.Tensor)
        }
    )
    return other


def applied(penalties: Penalties, text: Sequence[TokenId], row: Logits) -> Logits:
    """The logits of the token after a text, as penalties change them.

    Args:
        text: the tokens so far, prompt included
        row: the raw logits (V,)
    """
    return penalties(torch.tensor([list(text)]), row[None].cpu())[0].to(row.device)
