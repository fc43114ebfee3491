"""A pair of models that can be decoded with; what cannot is refused by name."""

import logging
from typing import Any

from transformers import PreTrainedModel

from decoders.engine.choice import named, prepared
from decoders.engine.engines import Model
from decoders.engine.model import PASSES, PackedModel
from decoders.engine.plain import PlainModel
from decoders.engine.translated import Translated
from decoders.engine.translation import Translation, Vocabulary
from decoders.errors import InputError
from decoders.inputs import as_list
from decoders.penalties import MODELLED, asked, said

log = logging.getLogger("decoders")


class ModelPair:
    """A target model, a draft model (or None) and the tokenizer they share.

    target, draft   `transformers` causal language models, each on one device or several; they are put in eval mode and otherwise left as they are
    tokenizer       may be None if prompts are lists of token ids
    packed   by role ("target", "draft") the models as they are run: packed, or with their own cache where that is not right
    draft_tokenizer  the draft's, if it is another one: the draft then proposes only tokens that both know (`decoders.engine.translation`)
    passes   how packed models are run: one of PASSES, see `decoders.engine.model.PackedModel`
    The sizes of the models' vocabularies may differ if both have all of the tokenizer's tokens.
    Later changes of weights by an optimizer, under `no_grad` or by `load_state_dict` are followed. Values written into a weight's
    `.data` may not be seen: make a new pair then. Modules replaced or adapters switched are refused at the next call.
    What the target's generation config asks for beyond sampling is said once, by the logger "decoders".
    Raises InputError, which says why, if the pair cannot be run.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        draft: PreTrainedModel | None,
        tokenizer: Any = None,
        draft_tokenizer: Any = None,
        *,
        passes: str = "recorded",
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
        target.eval()
        self.packed: dict[str, Model] = {"target": prepared(target, "target", passes=passes)}
        if draft is not None:
            size, draft_size = (model.config.get_text_config().vocab_size for model in (target, draft))
            translation = translation_between(tokenizer, draft_tokenizer, size, draft_size)
            if translation is None:
                same_vocabulary(size, draft_size, tokenizer)
            draft.eval()
            own = prepared(draft, "draft", self.vocabulary if translation is None else None, passes)
            self.packed["draft"] = own if translation is None else Translated(own, translation)
        for role, plain in self.plain.items():
            log.warning("The %s runs %s.", named(plain.model, role), plain.engine_name)
        if wishes := said(target.generation_config):
            log.warning(
                "The generation config of the %s asks for %s.", self.packed["target"].name, "; and for ".join(wishes)
            )

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a text, from the target's generation config or else the tokenizer."""
        ids = as_list(getattr(self.target.generation_config, "eos_token_id", None))
        if ids is None:
            ids = getattr(self.tokenizer, "eos_token_id", None)
        return frozenset() if ids is None else frozenset([ids] if isinstance(ids, int) else map(int, ids))

    @property
    def penalties(self) -> dict[str, Any]:
        """What the target's generation config asks for and decoders apply with `penalties=True`."""
        return asked(self.target.generation_config, MODELLED)

    @property
    def one_tokenizer(self) -> bool:
        return not isinstance(self.packed.get("draft"), Translated)

    @property
    def known(self) -> float:
        """The share of the target's tokens that the draft may propose; 1 if they have one tokenizer."""
        draft = self.packed.get("draft")
        return draft.translation.known if isinstance(draft, Translated) else 1.0

    @property
    def plain(self) -> dict[str, PlainModel | Translated]:
        """The models, by role, that run with their own cache, one request at a time."""
        own = {role: model for role, model in self.packed.items() if not isinstance(model, PackedModel)}
        return {role: model for role, model in own.items() if not model.packed}

    @property
    def vocabulary(self) -> int:
        return self.packed["target"].vocabulary

    @property
    def positions(self) -> int | None:
        """The most tokens, prompt and output together, that every model of the pair can see; None if no config has a limit."""
        return min((m.positions for m in self.packed.values() if m.positions is not None), default=None)


def translation_between(tokenizer: Any, draft_tokenizer: Any, size: int, draft_size: int) -> Translation | None:
    """How a draft with a tokenizer of its own is read and asked; None if it is the target's. Raises InputError if they share nothing."""
    if draft_tokenizer is None or tokenizer is None or draft_tokenizer.get_vocab() == tokenizer.get_vocab():
        return None
    return Translation.between(Vocabulary.of(tokenizer), Vocabulary.of(draft_tokenizer), size, draft_size)


def same_vocabulary(target: int, draft: int, tokenizer: Any) -> None:
    """Raise InputError unless two vocabularies of these sizes are one, or both have all tokens of the tokenizer: embeddings are often
    padded, and those of one family not always to one size."""
    if draft != target and (tokenizer is None or max(tokenizer.get_vocab().values()) >= min(target, draft)):
        raise InputError(
            f"Draft and target have different vocabularies: {draft} and {target} tokens; take a draft of the target's family, or "
            "give the draft's own tokenizer."
        )
