"""When a context is freed, with a made-up library."""

import gc
import weakref
from unittest.mock import MagicMock

from decoders.engine.gguf.context import LlamaContext
from tests.decoders.engine.gguf.cells import Table


def test_a_model_is_freed_after_its_contexts_when_one_ring_holds_both():
    """It was freed before them, and llama.cpp reads the model while it frees a context."""
    llama, order = MagicMock(), []
    llama.llama_free.side_effect = lambda pointer: order.append("context")
    file = Table()
    file.llama, file.pointer = llama, 1
    weakref.finalize(file, order.append, "model")
    ring = [file, LlamaContext(file, 8)]
    ring.append(ring)
    del file, ring
    gc.collect()
    assert order == ["context", "model"]
