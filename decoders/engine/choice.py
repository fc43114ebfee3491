"""Which engine a model runs in: packed passes if they are right, else its own cache; what neither runs right is refused."""

from collections.abc import Iterator

from transformers import PreTrainedModel

from decoders.engine.admission import agrees_with_plain_pass
from decoders.engine.model import PackedModel
from decoders.engine.plain import Following, PlainModel
from decoders.errors import InputError, NotPackedError


def prepared(
    model: PreTrainedModel, role: str, vocabulary: int | None = None, passes: str = "recorded"
) -> PackedModel | PlainModel:
    """The model, ready to be run, and tested: packed, or plainly with the quickest way of following a cached text that is right.

    passes   how it is run if it is packed
    Raises InputError, in one sentence that names the model, if none is.
    """
    try:
        packed = PackedModel(model, role, vocabulary, passes)
        if passes == "compiled":
            from decoders.engine.compiled import compile_passes  # imported late: it loads the compiler

            compile_passes([packed])
        agrees_with_plain_pass(packed)
        return packed
    except NotPackedError as error:
        why = str(error)
    for following in followings(model):
        try:
            plain = PlainModel(model, role, vocabulary, following, why)
            agrees_with_plain_pass(plain)
            return plain
        except NotPackedError as error:
            last = f"{following.said}, {error}"
    raise InputError(f"The {named(model, role)} cannot be run: packed, {why}; {last}.")


def named(model: PreTrainedModel, role: str) -> str:
    return f"{role} model {model.config.name_or_path or type(model).__name__} ({model.config.model_type})"


def followings(model: PreTrainedModel) -> Iterator[Following]:
    """What to try, the quickest first."""
    attentions: list[str | None] = [None]
    if getattr(model, "_supports_attention_backend", False):
        attentions = ["sdpa", "eager"] if getattr(model, "_supports_sdpa", False) else ["eager"]
    for several, cached in ((True, True), (False, True), (True, False)):
        for attention in attentions:
            yield Following(several, cached, attention)
