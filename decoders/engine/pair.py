"""A pair of models that can be decoded with; what cannot is refused by name."""

import logging
from typing import Any

from transformers import GenerationConfig, PreTrainedModel

from decoders.engine.admission import agrees_with_plain_pass
from decoders.engine.model import PASSES, PackedModel
from decoders.errors import InputError
from decoders.inputs import as_list

log = logging.getLogger("decoders")


class ModelPair:
    """A target model, a draft model (or None) and the tokenizer they share.

    target, draft   `transformers` causal language models on one device; they are put in eval mode and otherwise left as they are
    tokenizer       may be None if prompts are lists of token ids
    passes          how models are run: one of PASSES, see `decoders.engine.model.PackedModel`
    The sizes of the models' vocabularies may differ if both have all of the tokenizer's tokens.
    Later changes of weights by an optimizer, under `no_grad` or by `load_state_dict` are followed. Values written into a weight's
    `.data` may not be seen: make a new pair then. Modules replaced or adapters switched are refused at the next call.
    What the target's generation config asks for and decoders leave out is said once, by the logger "decoders".
    Raises InputError, which says why, if the pair cannot be run.
    """

    def __init__(
        self, target: PreTrainedModel, draft: PreTrainedModel | None, tokenizer: Any = None, *, passes: str = "recorded"
    ):
        if passes not in PASSES:
            raise InputError(f"passes must be one of {', '.join(map(repr, PASSES))}, not {passes!r}.")
        for model in (target,) if draft is None else (target, draft):
            if not isinstance(model, PreTrainedModel):
                given = repr(model) if isinstance(model, str) else f"an object of type {type(model).__name__}"
                raise InputError(
                    f"A model of a pair is a transformers model, not {given}; load_pair() takes names and folders, and of a "
                    "wrapped model give the one inside (.module, ._orig_mod, or merge_and_unload() of an adapter)."
                )
        self.target, self.draft, self.tokenizer, self.passes = target, draft, tokenizer, passes
        if draft is not None and draft.device != target.device:
            raise InputError(
                f"The models are on different devices, target on {target.device} and draft on {draft.device}; move one with .to()."
            )
        target.eval()
        self.packed = {"target": PackedModel(target, "target", passes=passes)}
        if draft is not None:
            sizes = (model.config.get_text_config().vocab_size for model in (target, draft))
            same_vocabulary(*sizes, tokenizer)
            draft.eval()
            self.packed["draft"] = PackedModel(draft, "draft", self.vocabulary, passes=passes)
        if passes == "compiled":
            from decoders.engine.compiled import compile_passes  # imported late: it loads the compiler

            compile_passes(self.packed.values())
        for packed in self.packed.values():
            agrees_with_plain_pass(packed)
        if left_out := not_modelled(target.generation_config):
            log.warning(
                "The generation config of the %s asks for %s, which decoders leave out.",
                self.packed["target"].name,
                ", ".join(left_out),
            )

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a text, from the target's generation config or else the tokenizer."""
        ids = as_list(getattr(self.target.generation_config, "eos_token_id", None))
        if ids is None:
            ids = getattr(self.tokenizer, "eos_token_id", None)
        return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else map(int, ids))

    @property
    def vocabulary(self) -> int:
        return self.packed["target"].vocabulary

    @property
    def positions(self) -> int | None:
        """The most tokens, prompt and output together, that every model of the pair can see; None if no config has a limit."""
        return min((m.positions for m in self.packed.values() if m.positions is not None), default=None)


def same_vocabulary(target: int, draft: int, tokenizer: Any) -> None:
    """Raise InputError unless two vocabularies of these sizes are one, or both have all tokens of the tokenizer: embeddings are often
    padded, and those of one family not always to one size."""
    if draft != target and (tokenizer is None or max(tokenizer.get_vocab().values()) >= min(target, draft)):
        raise InputError(
            f"Draft and target have different vocabularies: {draft} and {target} tokens; take a draft of the target's family."
        )


# What `generate` would do to logits, and no decoder does. Temperature, top-k and top-p are the caller's.
PROCESSORS = (
    "repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "sequence_bias", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id", "min_length",
    "min_new_tokens", "exponential_decay_length_penalty", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "guidance_scale",
    "watermarking_config",
)  # fmt: skip


def not_modelled(config: GenerationConfig | None) -> list[str]:
    """What a generation config asks for beyond sampling, as "name=value"."""
    neutral = {"repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "typical_p": 1.0, "guidance_scale": 1.0}
    asked = {name: getattr(config, name, None) for name in PROCESSORS}
    return [f"{name}={value}" for name, value in asked.items() if value and value != neutral.get(name)]
