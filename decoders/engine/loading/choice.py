"""The choice of an engine: packed passes if they are right, else the model's own cache.

A model that neither runs right is refused.
"""

import logging
from collections.abc import Iterator

from transformers import PreTrainedModel

from decoders.engine.loading.admission import agrees_with_plain_pass
from decoders.engine.models.packed import PackedModel
from decoders.engine.models.plain import Following, PlainModel
from decoders.errors import InputError, NotPackedError

log = logging.getLogger("decoders")


def prepared(
    model: PreTrainedModel, role: str, vocabulary: int | None = None, passes: str = "recorded"
) -> PackedModel | PlainModel:
    """Prepare and test a model.

    It is packed if that is right; otherwise it runs plainly, in the quickest way of following a
    cached text that is right.

    Args:
        model: the caller's model
        role: "target" or "draft", for messages
        vocabulary: see `PackedModel`
        passes: how it runs if it is packed

    Raises:
        InputError: in one sentence that names the model, if no way is right
    """
    try:
        packed = PackedModel(model, role, vocabulary, passes)
        if passes == "compiled":
            # Imported late, because it loads the compiler.
            from decoders.engine.loading.compiled import compile_passes

            compile_passes([packed])
        agrees_with_plain_pass(packed)
        return packed
    except NotPackedError as error:
        why = str(error)
    for following in followings(model):
        try:
            plain = PlainModel(model, role, vocabulary, following, why)
            agrees_with_plain_pass(plain)
            log.warning("The %s runs %s.", named(model, role), plain.engine_name)
            return plain
        except NotPackedError as error:
            last = f"{following.said}, {error}"
    raise InputError(f"The {named(model, role)} cannot be run: packed, {why}; {last}.")


def named(model: PreTrainedModel, role: str) -> str:
    return (
        f"{role} model {model.config.name_or_path or type(model).__name__} "
        f"({model.config.model_type})"
    )


def followings(model: PreTrainedModel) -> Iterator[Following]:
    """The ways of following a cached text that are tried, the quickest first."""
    attentions: list[str | None] = [None]
    if getattr(model, "_supports_attention_backend", False):
        attentions = ["sdpa", "eager"] if getattr(model, "_supports_sdpa", False) else ["eager"]
    for several, cached in ((True, True), (False, True), (True, False)):
        for attention in attentions:
            yield Following(several, cached, attention)
