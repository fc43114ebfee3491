"""Compiled passes, compiled at load so that decoding never waits (compile_passes).

There is one graph for passes of a single token and one for all others.
"""

import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental import _config as fx_config

from decoders.engine.models.packed import PackedModel
from decoders.engine.passes.packed import PackedPasses
from decoders.engine.recording.replay import Pass
from decoders.errors import first_line
from decoders.tree import TokenTree

log = logging.getLogger("decoders")


def compile_passes(models: Iterable[PackedModel]) -> None:
    """Compile the passes of these models.

    The logger "decoders" announces the wait (on standard error unless it is configured). If the
    compiler fails, for example because there is none for C++, the logger says so and the passes
    stay as they are.

    Args:
        models: the models
    """
    for packed in models:
        log.warning("Compiling the passes of the %s, which takes about a minute.", packed.name)
        began, compiled = (
            time.perf_counter(),
            torch.compile(packed.plain, dynamic=True, fullgraph=True),
        )
        packed.forward = partial(without_features, packed, compiled)
        try:
            # Sizes that are equal here may differ later, and the graphs of all models in memory
            # count against one limit. torch adds `patch` to its config modules as it loads.
            patch = fx_config.patch  # type: ignore[attr-defined]
            with patch(use_duck_shape=False), torch._dynamo.config.patch(recompile_limit=256):
                warm_up(packed)
        except Exception as error:  # from the compiler, or from tools that it calls
            packed.forward = packed.plain
            log.warning(
                "The passes of the %s are not compiled (%s); they take longer.",
                packed.name,
                first_line(error),
            )
        else:
            log.warning("Compiled the %s in %.0f s.", packed.name, time.perf_counter() - began)


def without_features(packed: PackedModel, compiled: Pass, **inputs: Any) -> tuple[Tensor, ...]:
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
