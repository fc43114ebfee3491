"""Compiled passes: one graph for passes of a single token and one for all others, compiled at load so that decoding never waits."""

import logging
import time
from collections.abc import Iterable

import torch
from torch.fx.experimental import _config as fx_config

from decoders.engine.model import Engine, PackedModel
from decoders.errors import first_line
from decoders.tree import TokenTree

log = logging.getLogger("decoders")


def compile_passes(models: Iterable[PackedModel]) -> None:
    """Compile the passes of these models. The logger "decoders" announces the wait (on standard error unless it is configured).

    If the compiler fails, for example because there is none for C++, it says so and the passes stay as they are.
    """
    for packed in models:
        log.warning("Compiling the passes of the %s, which takes about a minute.", packed.name)
        began, packed.forward = time.perf_counter(), torch.compile(packed.plain, dynamic=True, fullgraph=True)
        try:
            # Sizes that are equal here may differ later; and the graphs of all models in memory count against one limit.
            patch = fx_config.patch  # type: ignore[attr-defined]  # torch gives it to its config modules as it loads
            with patch(use_duck_shape=False), torch._dynamo.config.patch(recompile_limit=256):
                warm_up(packed)
        except Exception as error:  # the compiler's own errors, or those of the tools that it calls
            packed.forward = packed.plain
            log.warning("The passes of the %s are not compiled (%s); they take longer.", packed.name, first_line(error))
        else:
            log.warning("Compiled the %s in %.0f s.", packed.name, time.perf_counter() - began)


def warm_up(packed: PackedModel) -> None:
    """Run passes of both kinds: a chain; trees of two requests, after the arena has grown; single tokens."""
    engine, trees = Engine(packed), [TokenTree([0] * 11), TokenTree([0] * 5)]
    for tree in trees:
        engine.admit(tree, 23)
        engine.run([(tree, tree.trunk[-1:])])
    engine.run([(tree, [tree.add(tree.trunk[-1], token) for token in (1, 2)]) for tree in trees])
    for tree in trees:
        engine.run([(tree, [tree.add(tree.tail[0], 3)])])
