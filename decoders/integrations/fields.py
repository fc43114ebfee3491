"""Every field of transformers' GenerationConfig, and how a decoder treats it.

A test looks for fields that are missing here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig

FOLLOWED = "it means the same as in `generate`"
PROCESSOR = "`generate` makes a logits processor of it, and `asked.sampling` refuses that"
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


def refusals(config: GenerationConfig) -> Iterator[str]:
    """A sentence for each request of a generation config that decoders do not do.

    It names the field and the fix.
    """
    for name, met in FIELDS.items():
        if isinstance(met, Refused) and getattr(config, name, None) not in met.neutral:
            yield f"{name} {met.why}."
