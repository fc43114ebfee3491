"""Exact language-model decoding: one engine, and every decoder of the papers on it.

Example:
    import decoders

    pair = decoders.load_pair()
    method = decoders.catalog["speculative"]()
    out = decoders.generate(pair, "Once upon a time", method, max_new_tokens=64)
"""

__version__ = "0.2.0"

from importlib import import_module

from decoders.process import quietly

# Transformers imports torchao if it is installed, needed or not. On every start, torchao logs
# warnings about kernels for other devices and about parts that torch will drop.
with quietly("torchao", "torch.utils._pytree"):
    import_module("transformers.modeling_utils")

from decoders.devices import default_device, default_dtype
from decoders.distribution import Warping
from decoders.divergence import Divergence, Places, compare_greedy, read
from decoders.engine.heads.head import Head
from decoders.engine.loading.load import load_pair, parameters
from decoders.engine.loading.pair import ModelPair
from decoders.engine.weights import copies_bytes
from decoders.errors import InputError, ModelError
from decoders.generate import cache_need, check, generate, stream
from decoders.inputs import read_reference
from decoders.integrations.custom_generate import hf
from decoders.judge import Judgement, judge
from decoders.methods.catalog import catalog
from decoders.settings import Method
from decoders.trace import Event, Fate, Metrics, Result, Round, Trial

__all__ = [
    "Divergence", "Event", "Fate", "Head", "InputError", "Judgement", "Method", "Metrics",
    "ModelError", "ModelPair", "Places", "Result", "Round", "Trial", "Warping", "cache_need",
    "catalog", "check", "compare_greedy", "copies_bytes", "default_device", "default_dtype",
    "generate", "hf", "judge", "load_pair", "parameters", "read", "read_reference", "stream",
]  # fmt: skip
