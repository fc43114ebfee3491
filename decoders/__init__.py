"""Exact language-model decoding: one engine, and every decoder of the papers on it.

import decoders
pair = decoders.load_pair()
out = decoders.generate(pair, "Once upon a time", decoders.catalog["speculative"](), max_new_tokens=64)
"""

__version__ = "0.2.0"

from importlib import import_module

from decoders.quiet import quietly

# Transformers imports torchao where that is installed, asked or not. On every start that tells of kernels for other devices, and of what
# torch will give up.
with quietly("torchao", "torch.utils._pytree"):
    import_module("transformers.modeling_utils")

from decoders.catalog import catalog
from decoders.engine.linear import copies_bytes
from decoders.engine.load import default_device, default_dtype, load_pair
from decoders.engine.pair import ModelPair
from decoders.engine.sources import parameters
from decoders.errors import InputError, ModelError
from decoders.generate import Event, Result, check, generate, stream
from decoders.inputs import read_reference
from decoders.integrations.custom_generate import hf
from decoders.metrics import Metrics
from decoders.settings import Method
from decoders.task import cache_need
from decoders.trace import Fate, Round, Trial
from decoders.warp import Warping

__all__ = [
    "Event", "Fate", "InputError", "Method", "Metrics", "ModelError", "ModelPair", "Result", "Round", "Trial", "Warping",
    "cache_need", "catalog", "check", "copies_bytes", "default_device", "default_dtype", "generate", "hf", "load_pair",
    "parameters", "read_reference", "stream",
]  # fmt: skip
