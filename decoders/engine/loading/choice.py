"""The choice of an engine: packed passes if they are right, else the model's own cache.

A model that neither runs right is refused. Packed passes are compiled here if that is asked for, at
load so that decoding never waits: one graph for passes of a single token and one for all others.
"""

import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from decoders.engine.loading.admission import agrees_with_plain_pass
from decoders.engine.models.loaded import undisturbed
from decoders.engine.models.packed import PackedModel
from decoders.engine.models.patches import patched
from decoders.engine.models.plain import Following, PlainModel
from decoders.engine.passes.packed import PackedPasses
from decoders.engine.recording.replay import Pass, run_plainly
from decoders.errors import InputError, NotPackedError, first_line
from decoders.tree import TokenTree

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
    config = model.config
    name = f"{role} model {config.name_or_path or type(model).__name__} ({config.model_type})"
    try:
        packed = PackedModel(model, role, vocabulary, passes)
        if passes == "compiled" and not patched(model):
            compile_passes(packed)
        agrees_with_plain_pass(packed)
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


def compile_passes(packed: PackedModel) -> None:
    """Compile the passes of a model.

    The logger "decoders" announces the wait (on standard error unless it is configured). If the
    compiler fails, for example because there is none for C++, the logger says so and the passes
    stay as they are.

    Args:
        packed: the model
    """
    # It loads the compiler.
    from torch.fx.experimental import _config as fx_config

    log.warning("Compiling the passes of the %s, which takes about a minute.", packed.name)
    began = time.perf_counter()
    compiled = torch.compile(packed.plain, dynamic=True, fullgraph=True)
    packed.forward = partial(without_features, packed, compiled)
    try:
        # Sizes that are equal here may differ later, and the graphs of all models in memory count
        # against one limit. torch adds `patch` to its config modules as it loads.
        patch = fx_config.patch  # type: ignore[attr-defined]  # torch adds it on import
        with patch(use_duck_shape=False), torch._dynamo.config.patch(recompile_limit=256):
            warm_up(packed)
        log.warning("Compiled the %s in %.0f s.", packed.name, time.perf_counter() - began)
    except Exception as error:  # from the compiler, or from tools that it calls
        packed.forward = packed.plain
        run_plainly(packed.name, "compiled", first_line(error))


def without_features(
    packed: PackedModel, compiled: Pass, **inputs: Any
) -> tuple[torch.Tensor, ...]:
    """A compiled pass, or a plain one if hidden states are requested.

    A compiler cannot follow how transformers collects them.
    """
    return (packed.plain if inputs["features"] else compiled)(**inputs)


def warm_up(packed: PackedModel) -> None:
    """Run passes of both kinds: a chain; trees of two requests in a grown arena; single tokens."""
    engine, trees = PackedPasses(packed), [TokenTree([0] * 11), TokenTree([0] * 5)]
    for tree in trees:
        engine.admit(tree, 23)
        engine.run([(tree, tree.trunk[-1:])])
    engine.run([(tree, [tree.add(tree.trunk[-1], token) for token in (1, 2)]) for tree in trees])
    for tree in trees:
        engine.run([(tree, [tree.add(tree.tail[0], 3)])])
