"""A pair of models that can be decoded with; what cannot is refused by name."""

from typing import Any

from transformers import PreTrainedModel

from decoders.engine.admission import agrees_with_plain_pass
from decoders.engine.model import PackedModel
from decoders.errors import InputError


class ModelPair:
    """A target model, a draft model (or None) and the tokenizer they share.

    target, draft   `transformers` causal language models on one device; they are put in eval mode and otherwise left as they are
    tokenizer       may be None if prompts are lists of token ids
    Raises InputError, which says why, if the pair cannot be run.
    """

    def __init__(self, target: PreTrainedModel, draft: PreTrainedModel | None, tokenizer: Any = None):
        for model in (target, draft):
            if model is not None and not isinstance(model, PreTrainedModel):
                raise InputError(
                    f"A model of a pair is a transformers model, not {model!r}; load_pair() takes names and folders."
                )
        self.target, self.draft, self.tokenizer = target, draft, tokenizer
        if draft is not None and draft.device != target.device:
            raise InputError(
                f"The models are on different devices, target on {target.device} and draft on {draft.device}; move one with .to()."
            )
        self.packed: dict[str, PackedModel] = {}
        for role, model in (("target", target), ("draft", draft)):
            if model is not None:
                model.eval()
                self.packed[role] = PackedModel(model, role)
        if draft is not None:
            same_size(self.packed["target"].vocabulary, self.packed["draft"].vocabulary)
        for packed in self.packed.values():
            agrees_with_plain_pass(packed)

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a text, from the target's generation config or else the tokenizer."""
        ids = getattr(self.target.generation_config, "eos_token_id", None)
        if ids is None:
            ids = getattr(self.tokenizer, "eos_token_id", None)
        return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else ids)

    @property
    def vocabulary(self) -> int:
        return self.packed["target"].vocabulary

    @property
    def positions(self) -> int | None:
        """The most tokens, prompt and output together, that every model of the pair can see; None if no config has a limit."""
        return min((m.positions for m in self.packed.values() if m.positions is not None), default=None)


def same_size(target: int, draft: int) -> None:
    """Raise InputError if two vocabularies have different numbers of tokens."""
    if draft != target:
        raise InputError(
            f"Draft and target have different vocabularies: {draft} and {target} tokens; take a draft of the target's family."
        )
