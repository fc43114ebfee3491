"""A pair of models to decode with (ModelPair); models that do not fit are refused by name."""

import logging
import threading
from collections.abc import Iterable
from typing import Any, cast

from transformers import GenerationConfig, PreTrainedModel

from decoders.engine.fingerprint import TrialLog
from decoders.engine.heads.head import Head, made_for
from decoders.engine.loading.admission import prepared
from decoders.engine.models.loaded import in_eval_mode
from decoders.engine.models.packed import PASSES
from decoders.engine.models.translation import Translated, Translation, Vocabulary
from decoders.engine.protocols import Model
from decoders.errors import InputError, allowed, quoted, refuse
from decoders.inputs import as_list, as_tokenizer, end_of_turn
from decoders.penalties import MODELLED, said, settings_of
from decoders.process import light_heap

log = logging.getLogger("decoders")


class ModelPair:
    """A target model, a draft model (or None) and the tokenizer that they share.

    The sizes of the models' vocabularies may differ if both have all of the tokenizer's tokens.
    Every call follows what was changed in the models before it: weights, modules, hooks, adapters,
    attributes and functions in place of `forward` (see `follow` and `refresh`). While a model has
    hooks or such functions its passes run plainly. The logger "decoders" says once what the
    target's generation config asks for.

    Args:
        target: a causal language model of `transformers`, on one device or several, which is put in
            eval mode and otherwise left as it is; or anything that fits
            `decoders.engine.protocols.Model`
        draft: the same, or a head, or None
        tokenizer: may be None if prompts are lists of token ids
        draft_tokenizer: the draft's, if it is another one. The draft then proposes only tokens that
            both know (`decoders.engine.models.translation`).
        head: a head of the target beside the draft, or None; without it, a draft that is a head
        passes: how packed models run, see `load_pair`
        trials: those that the target has passed before and need not be repeated; by default none

    Attributes:
        packed: the models as they run, by role ("target", "draft", "head"): packed, or with their
            own cache where that is not right

    Raises:
        InputError: if the pair cannot be run, with the reason
    """

    def __init__(
        self,
        target: PreTrainedModel | Model,
        draft: PreTrainedModel | Model | None,
        tokenizer: Any = None,
        draft_tokenizer: Any = None,
        *,
        head: Head | None = None,
        passes: str = "program",
        trials: TrialLog | None = None,
    ):
        allowed("passes", passes, choices=PASSES)
        models = (target,) if draft is None else (target, draft)
        others = [
            quoted(model) if isinstance(model, str) else f"an object of type {type(model).__name__}"
            for model in models
            if not isinstance(model, PreTrainedModel | Model)
        ]
        as_tokenizer("tokenizer", tokenizer)
        as_tokenizer("draft_tokenizer", draft_tokenizer)
        refuse(
            (
                not isinstance(head, Head | None),
                f"head is a head that load_pair() has loaded, not {type(head).__name__}; give a "
                "draft model as the draft.",
            ),
            (
                isinstance(target, Model) and target.reads,
                "A head drafts for a target; give it as the draft, or as head.",
            ),
            (
                others,
                f"A model of a pair is a transformers model, not {' or '.join(others)}; "
                "load_pair() takes names and folders; unwrap a wrapped model first (.module, "
                "._orig_mod, or merge_and_unload() of an adapter).",
            ),
            (
                draft_tokenizer is not None and tokenizer is None,
                "draft_tokenizer needs the target's tokenizer beside it; give that as tokenizer.",
            ),
        )
        self.target: Any = target
        self.draft, self.passes = draft, passes
        self.head = draft if head is None and isinstance(draft, Head) else head
        self.tokenizer, self.draft_tokenizer = tokenizer, draft_tokenizer
        self._turn: tuple[Any, int | None] = None, None  # a chat template, and how it ends answers
        self._preparing = threading.Lock()
        for each in (target, draft):
            if isinstance(each, PreTrainedModel):
                each.eval()
        self.packed: dict[str, Model] = self._all_prepared(trials)
        if wishes := said(self.generation_config):
            log.warning(
                "The generation config of the %s asks for %s.",
                self.packed["target"].name,
                "; and for ".join(wishes),
            )

    def __copy__(self) -> "ModelPair":
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __reduce__(self) -> Any:
        raise InputError(
            "A pair holds models that are prepared for this process, so it cannot be pickled or "
            "deeply copied; do that with its target and draft, and make a ModelPair of them there."
        )

    def _all_prepared(self, trials: TrialLog | None = None) -> dict[str, Model]:
        target = self._prepared(self.target, "target", trials=trials)
        packed = {"target": target}
        if self.draft is not None:
            packed["draft"] = self._prepared_draft(target)
        if self.head is not None:
            packed["head"] = fitting(self.head, self.target, target)
        return packed

    def _prepared(
        self,
        model: PreTrainedModel | Model,
        role: str,
        vocabulary: int | None = None,
        trials: TrialLog | None = None,
    ) -> Model:
        if isinstance(model, Model):
            return model
        with light_heap(), in_eval_mode(model):
            return prepared(model, role, vocabulary, self.passes, trials)

    def _prepared_draft(self, target: Model) -> Model:
        draft: Any = self.draft
        ready = isinstance(draft, Model)
        if ready and self.draft_tokenizer is None:
            return fitting(draft, self.target, target)
        if ready and draft.reads:
            raise InputError("A head reads the target's tokens; leave draft_tokenizer out.")
        size = draft.vocabulary if ready else draft.config.get_text_config().vocab_size
        translation = translation_between(
            self.tokenizer, self.draft_tokenizer, target.vocabulary, size
        )
        if translation is None:
            return self._prepared(draft, "draft", target.vocabulary)
        inner: Any = self._prepared(draft, "draft")
        return cast(Model, Translated(inner, translation))

    def take(self, head: Head) -> None:
        """Let a head draft beside the draft.

        Raises:
            InputError: if it does not fit
        """
        self.packed["head"] = fitting(head, self.target, self.packed["target"])
        self.head = head

    def follow(self, roles: Iterable[str]) -> None:
        """Take up what the callers of these models have changed since the last run.

        Copies of changed weights are made anew when they are next needed. After any other change
        all models are prepared anew, as if for a new pair. Every call begins with this.

        Args:
            roles: the models that the run asks

        Raises:
            InputError: if the pair can no longer be run, with the reason
        """
        with self._preparing:
            models = [self.packed[role] for role in roles]
            changed = [m for m in models if hasattr(m, "follow") and not m.follow()]
            for model in changed:
                log.info("The %s has been changed; it is prepared anew.", model.name)
            if changed:
                self.packed = self._all_prepared()

    def refresh(self) -> None:
        """Prepare all models anew.

        Use this after a change of a few numbers that raises no version of a weight, as
        `weight.data[3, 5] = 0`: calls look at a few numbers of each weight alone.

        Raises:
            InputError: if the pair can no longer be run, with the reason
        """
        with self._preparing:
            for model in self.packed.values():
                if isinstance(model, Head):
                    model.forget()
            self.packed = self._all_prepared()

    @property
    def generation_config(self) -> GenerationConfig | None:
        return getattr(self.target, "generation_config", None)

    @property
    def end_tokens(self) -> frozenset[int]:
        """The ids that end a text, from the target's generation config or else the tokenizer.

        The token with which the tokenizer's chat template ends an answer is always one of them.
        """
        ids = as_list(getattr(self.generation_config, "eos_token_id", None))
        if ids is None:
            ids = getattr(self.tokenizer, "eos_token_id", None)
        known = [ids] if isinstance(ids, int) else ids or []
        template = getattr(self.tokenizer, "chat_template", None)
        if self._turn[0] is not template:
            self._turn = template, end_of_turn(self.tokenizer)
        return frozenset(int(i) for i in (*known, self._turn[1]) if i is not None)

    @property
    def bos(self) -> int | None:
        """The id that begins a text, from the tokenizer or else the target's generation config."""
        known = self.generation_config if self.tokenizer is None else self.tokenizer
        return getattr(known, "bos_token_id", None)

    @property
    def penalties(self) -> dict[str, Any]:
        """Settings of the target's generation config that decoders apply with `penalties=True`."""
        return settings_of(self.generation_config, MODELLED)

    @property
    def one_tokenizer(self) -> bool:
        return not isinstance(self.packed.get("draft"), Translated)

    @property
    def known(self) -> float:
        """The share of the target's tokens that the draft may propose; 1 with one tokenizer."""
        draft = self.packed.get("draft")
        return draft.translation.known if isinstance(draft, Translated) else 1.0

    @property
    def plain(self) -> dict[str, Model]:
        """The models, by role, that run with their own cache, one request at a time."""
        return {role: model for role, model in self.packed.items() if not model.packed}

    @property
    def vocabulary(self) -> int:
        return self.packed["target"].vocabulary

    @property
    def positions(self) -> int | None:
        """The most tokens, prompt and output together, that every model of the pair can see.

        It is None if no config has a limit.
        """
        return min(
            (m.positions for m in self.packed.values() if m.positions is not None), default=None
        )


def fitting(drafter: Model, target: Any, prepared: Model) -> Model:
    """Return a model that drafts; raise InputError if it does not fit the target.

    Args:
        drafter: a head, or another model that needs no preparation
        target: the caller's target
        prepared: the target as it runs
    """
    same_vocabulary(prepared.vocabulary, drafter.vocabulary, None)
    if (
        isinstance(drafter, Head)
        and isinstance(target, PreTrainedModel)
        and drafter.made_for != made_for(target)
    ):
        raise InputError(
            "The head was loaded for a target of another width, dtype or device; load both "
            "with load_pair()."
        )
    prepared.refuse_features(drafter.reads)
    return drafter


def translation_between(
    tokenizer: Any, draft_tokenizer: Any, size: int, draft_size: int
) -> Translation | None:
    """The translation for a draft with another tokenizer; None if the tokenizers are the same.

    Args:
        tokenizer: the target's tokenizer
        draft_tokenizer: the draft's tokenizer, or None
        size: the number of the target's logits
        draft_size: the number of the draft's logits

    Raises:
        InputError: if they share no tokens, or are the same and a model lacks some of its tokens
    """
    if (
        draft_tokenizer is None
        or tokenizer is None
        or draft_tokenizer.get_vocab() == tokenizer.get_vocab()
    ):
        same_vocabulary(size, draft_size, tokenizer)
        return None
    return Translation.between(
        Vocabulary.of(tokenizer), Vocabulary.of(draft_tokenizer), size, draft_size
    )


def same_vocabulary(target: int, draft: int, tokenizer: Any) -> None:
    """Raise InputError unless two vocabularies are one, or both have all tokens of the tokenizer.

    Embeddings are often padded, and those of one family not always to one size.

    Args:
        target: the size of the target's vocabulary
        draft: the size of the draft's vocabulary
        tokenizer: the tokenizer of both, or None
    """
    if draft != target and (
        tokenizer is None or max(tokenizer.get_vocab().values()) >= min(target, draft)
    ):
        raise InputError(
            f"Draft and target have different vocabularies: {draft} and {target} tokens; take a "
            "draft of the target's family, or give the tokenizers of both, as tokenizer and "
            "draft_tokenizer."
        )
