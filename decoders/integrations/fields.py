"""Every field of transformers' GenerationConfig, and what a call demands of a decoder.

Demands that decoders cannot meet, soft prompts among them, are refused in one sentence.
"""

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from transformers import Cache, GenerationConfig, LogitsProcessor, PreTrainedModel
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
from decoders.penalties import TEXT_ALONE
from decoders.shapes import TokenId


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
            inputs, expected = (make(input_ids, **options) for make in (function, usual))
        alike = inputs.keys() == expected.keys() and all(
            same(inputs[key], value) for key, value in expected.items()
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


FOLLOWED = "it means the same as in `generate`"
PROCESSOR = "`generate` makes a logits processor of it, and `sampling` refuses that"
OUTPUT = "refused if outputs are asked for"
IDLE = "it does not change the tokens"


@dataclass(frozen=True)
class Refused:
    """A field that is refused.

    Attributes:
        why: the words that follow the field's name in the message
        neutral: the values that ask for nothing
    """

    why: str
    neutral: tuple[Any, ...] = (None,)


def _like(decoder: str) -> str:
    return f"leave it out and take decoders.hf({decoder})"


BEAMS = "is about beams, which belong to the decoder; " + _like(
    '"beam_search", beams=4, length_penalty=1.0, early_stopping=True'
)
GROUPS = "asks for groups of beams, which no decoder has; leave it out"
CONSTRAINTS = "asks for constrained beam search, which no decoder does; leave it out"
DRAFTS = "is about drafts, which belong to the decoder; " + _like(
    '"speculative", draft=model, draft_length=4'
)
LOOKUP = f"""asks for drafts copied from the text; {_like('"lookup", copy=7, match=2')}"""

FIELDS: dict[str, str | Refused] = {
    **dict.fromkeys((
        "max_length", "max_new_tokens", "max_time", "do_sample", "temperature", "top_k", "top_p",
        "min_p", "repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens",
        "renormalize_logits", "pad_token_id", "bos_token_id", "eos_token_id",
        "return_dict_in_generate",
    ), FOLLOWED),
    **dict.fromkeys((
        "begin_suppress_tokens", "min_length", "min_new_tokens", "top_h", "typical_p",
        "epsilon_cutoff", "eta_cutoff", "encoder_repetition_penalty",
        "encoder_no_repeat_ngram_size", "forced_bos_token_id", "forced_eos_token_id",
        "remove_invalid_values", "exponential_decay_length_penalty", "sequence_bias",
        "guidance_scale", "watermarking_config",
    ), PROCESSOR),
    **dict.fromkeys(
        ("output_scores", "output_logits", "output_attentions", "output_hidden_states"), OUTPUT,
    ),
    # Caches, compilation, and fields that have a meaning only beside a field that is refused.
    **dict.fromkeys((
        "use_cache", "cache_config", "max_cache_len", "prefill_chunk_size", "compile_config",
        "disable_compile", "continuous_batching_config", "low_memory", "decoder_start_token_id",
        "transformers_version",
    ), IDLE),
    "num_beams": Refused(
        'repeats the rows of the batch, and a decoder would decode each of them alone; leave it '
        'out and give beams to the decoder, as in decoders.hf("beam_search", beams=4)', (None, 1),
    ),
    "num_return_sequences": Refused(
        "repeats the rows of the batch; leave it out, and repeat the prompt yourself", (None, 1),
    ),
    "early_stopping": Refused(BEAMS, (None, False)),
    "length_penalty": Refused(BEAMS, (None, 1.0)),
    "num_beam_groups": Refused(GROUPS, (None, 1)),
    "diversity_penalty": Refused(GROUPS, (None, 0.0)),
    "constraints": Refused(CONSTRAINTS),
    "force_words_ids": Refused(CONSTRAINTS),
    "penalty_alpha": Refused(
        "asks for contrastive search, which no decoder does; leave it out", (None, 0.0),
    ),
    "dola_layers": Refused("asks for DoLa, which no decoder does; leave it out"),
    "use_mtp": Refused(DRAFTS, (None, False)),
    "assistant_early_exit": Refused(DRAFTS),
    "speculation_type": Refused(DRAFTS),
    "assistant_ensemble_weight": Refused(DRAFTS),
    "num_assistant_tokens": Refused(DRAFTS, (None, 20)),
    "num_assistant_tokens_schedule": Refused(DRAFTS, (None, "constant")),
    "assistant_confidence_threshold": Refused(DRAFTS, (None, 0.4)),
    "assistant_lookbehind": Refused(DRAFTS, (None, 10)),
    "target_lookbehind": Refused(DRAFTS, (None, 10)),
    "is_assistant": Refused("marks the model as a draft; leave it out", (None, False)),
    "prompt_lookup_num_tokens": Refused(LOOKUP),
    "max_matching_ngram_size": Refused(LOOKUP),
    "stop_strings": Refused(
        f"""belongs to the decoder; {_like('"greedy", tokenizer=tokenizer, stop=["."]')}""",
    ),
    "token_healing": Refused(
        "changes the prompt; leave it out and heal the prompt yourself", (None, False),
    ),
    "cache_implementation": Refused(
        "chooses a cache, and decoders keep their own caches; leave it out", (None, "dynamic"),
    ),
}  # fmt: skip
OUTPUTS = [name for name, met in FIELDS.items() if met == OUTPUT]


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
class PromptRow:
    """One row of a batch.

    Attributes:
        given: the row's tokens with their padding
        prompt: the tokens without padding
    """

    given: torch.Tensor
    prompt: list[TokenId]


def rows(
    input_ids: torch.Tensor, inputs: Mapping[str, Any], config: GenerationConfig
) -> list[PromptRow]:
    """The prompts of a batch.

    Args:
        input_ids: token ids (rows, length)
        inputs: the other inputs of `generate`

    Raises:
        InputError: for inputs and outputs that decoders do not have
    """
    for name, met in FIELDS.items():
        if isinstance(met, Refused) and getattr(config, name, None) not in met.neutral:
            raise InputError(f"{name} {met.why}.")
    whole = config.return_dict_in_generate
    output = next((name for name in OUTPUTS if whole and getattr(config, name)), "")
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
    real = (torch.ones_like(input_ids) if mask is None else mask.to(input_ids.device)).bool()
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
            real.shape != input_ids.shape
            or not real[:, -1].all()
            or (real[:, 1:] < real[:, :-1]).any(),
            "The attention mask may leave out the left of a row only; pad on the left "
            "(padding_side='left').",
        ),
    )
    positions, counted = inputs.get("position_ids"), real.long().cumsum(1) - 1
    if positions is not None and (positions.to(real.device) != counted)[real].any():
        raise InputError(
            "Decoders count positions from the first token of a prompt; leave position_ids out."
        )
    return [PromptRow(row, row[keep].tolist()) for row, keep in zip(input_ids, real, strict=True)]


def holds_text(cache: Cache) -> bool:
    """Whether a cache holds a text; one of states alone counts no tokens."""
    try:
        return cache.get_seq_length() > 0
    except ValueError:
        return cache.has_previous_state()


def without_padding(penalty: LogitsProcessor, prompts: Sequence[PromptRow]) -> LogitsProcessor:
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
    config: GenerationConfig, processors: LogitsProcessorList, prompts: Sequence[PromptRow]
) -> dict[str, Any]:
    """Temperature, top-k, top-p, min-p and penalties.

    Args:
        processors: the logits processors that `generate` has made

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
