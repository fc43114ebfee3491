"""The choice of an engine: packed passes if they are right, else the model's own cache.

A model that neither runs right is refused.
"""

import logging
from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from decoders.engine.loading.admission import agrees_with_plain_pass
from decoders.engine.models.loaded import undisturbed
from decoders.engine.models.packed import PackedModel
from decoders.engine.models.plain import Following, PlainModel
from decoders.engine.patches import patched
from decoders.engine.trials import Trials
from decoders.errors import InputError, NotPackedError, first_line

log = logging.getLogger("decoders")
ADMISSION = "packed passes agree with passes over whole texts"


def prepared(
    model: PreTrainedModel,
    role: str,
    vocabulary: int | None = None,
    passes: str = "program",
    trials: Trials | None = None,
) -> PackedModel | PlainModel:
    """Prepare and test a model.

    It is packed if that is right; otherwise it runs plainly, in the quickest way of following a
    cached text that is right.

    Args:
        model: the caller's model
        role: "target" or "draft", for messages
        vocabulary: see `PackedModel`
        passes: how it runs if it is packed
        trials: those that it has passed before

    Raises:
        InputError: in one sentence that names the model, if no way is right
    """
    config = model.config
    name = f"{role} model {config.name_or_path or type(model).__name__} ({config.model_type})"
    try:
        packed = PackedModel(model, role, vocabulary, passes, trials=trials)
        if trials is not None and trials.passed(ADMISSION):
            return packed.ready()
        agrees_with_plain_pass(packed)
        if trials is not None:
            trials.note(ADMISSION)
        return packed
    except NotPackedError as error:
        why = str(error)
    for following in followings(model):
        try:
            plain = PlainModel(model, role, vocabulary, following, why)
            agrees_with_plain_pass(plain)
            log.warning("The %s runs %s.", name, plain.engine_name)
            return plain
        except NotPackedError as error:
            last = f"{following.said}, {error}"
    refuse_broken(model, name)
    patch = patched(model)
    also = f"; {patch}, which may be the reason: take it out" if patch else ""
    raise InputError(f"The {name} cannot be run: packed, {why}; {last}{also}.")


def refuse_broken(model: PreTrainedModel, name: str) -> None:
    """Raise InputError, which says why, if a model does not even run by itself.

    Args:
        model: the caller's model, which no way of running it serves
        name: its role, name and type
    """
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    try:
        with undisturbed(model.device):
            out = model(input_ids=ids, use_cache=False)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    # The model's code can fail in any way.
    except Exception as error:
        floating = (p.dtype for p in model.parameters() if p.is_floating_point())
        dtypes = sorted({str(dtype).removeprefix("torch.") for dtype in floating})
        mend = (
            f"its weights are of {' and '.join(dtypes)}, so bring them to one dtype, as "
            f"model.to(torch.{dtypes[0]})"
            if len(dtypes) > 1
            else "mend its config, its weights or its code"
        )
        raise InputError(
            f"The {name} cannot be run: its own pass over a text, without any decoder, fails "
            f"({first_line(error).rstrip('.')}); {mend}."
        ) from None
    if not hasattr(out, "logits"):
        raise InputError(
            f"The {name} cannot be run: its pass gives no logits; load a causal language model, "
            "with AutoModelForCausalLM."
        )


def followings(model: PreTrainedModel) -> Iterator[Following]:
    """The ways of following a cached text that are tried, the quickest first."""
    attentions: list[str | None] = [None]
    if getattr(model, "_supports_attention_backend", False):
        attentions = ["sdpa", "eager"] if getattr(model, "_supports_sdpa", False) else ["eager"]
    for several, cached in ((True, True), (False, True), (True, False)):
        for attention in attentions:
            yield Following(several, cached, attention)
