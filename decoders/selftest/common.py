"""Sections `machine` and `ways`, which compares each way to attend with float64.

And what all sections share, as small random models.
"""

import itertools
import os
import platform
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig

from decoders import default_device
from decoders.engine.attention import operator
from decoders.engine.memory.arena import Arena
from decoders.engine.memory.arenas import ReachRows
from decoders.engine.memory.feeds import Feed, pack
from decoders.engine.memory.rows import CacheRows, Reach
from decoders.tree import TokenTree

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]


class Wrong(Exception):
    """A fault that a section found, in one sentence."""


def llama(dtype: torch.dtype = torch.float64, **sizes: float) -> Any:
    """A random model, small unless `sizes` say otherwise."""
    torch.manual_seed(0)
    given: dict[str, Any] = {
        "vocab_size": 67,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
    } | sizes
    config = LlamaConfig(**given, bos_token_id=None, eos_token_id=None)
    with default_device():  # seven billion random numbers take a CPU minutes
        model: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    with torch.no_grad():  # as published ones are, which kernels need
        for p in model.parameters():
            p.copy_(p.bfloat16())
    return model.eval()


def machine() -> Iterator[str]:
    """The machine, versions, and the ways to attend that may be taken here."""
    yield (
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}"
    )
    yield f"{os.cpu_count()} processors, {torch.get_num_threads()} threads, {platform.machine()}"
    if default_device().type == "cuda":
        major, minor = torch.cuda.get_device_capability()
        yield (
            f"{torch.cuda.get_device_name()}, capability {major}.{minor}, "
            f"{torch.cuda.get_device_properties(0).total_memory / 1e9:.0f} GB, "
            f"CUDA {torch.version.cuda}"
        )
        yield (
            f"FlashAttention {'may be' if operator.FLASH else 'is not'} taken, "
            f"Triton {'may be' if operator.TRITON else 'is not'}"
        )
    else:
        yield "There is no CUDA device: kernels are left out, everything else runs on the CPU."


def ways() -> Iterator[str]:
    """The error of each way to attend, compared with float64.

    Heads of 64 to 256, 1 to 8 query heads per key head, 1 to 4,000 rows, with and without a window
    and sinks.
    """
    taken: dict[str, Callable] = {"one by one": operator.attend_one_by_one}
    if default_device().type == "cuda" and torch.cuda.get_device_capability() >= (8, 0):
        taken |= {"Triton": operator.attend_with_triton} if operator.TRITON else {}
        taken |= {"FlashAttention": operator.attend_chains} if operator.FLASH else {}
    elif default_device().type == "cpu":
        yield "Triton and FlashAttention need a GPU: left out."
    for name, way in taken.items():
        flash = name == "FlashAttention"
        halves = torch.float16, torch.bfloat16
        for dtype in halves if flash else (torch.float32, *halves):
            sizes = (64, 128, 256), (1, 4, 8), (1, 70, 4000), (False,) if flash else (False, True)
            errors = [
                error_of(way, dtype, *case, window, sunk=window > 0 and not flash)
                for case in itertools.product(*sizes)
                for window in (0, 33)
            ]
            error, passes = max(errors), len(errors)
            yield f"{name}, {str(dtype)[6:]}: error at most {error:.1e} in {passes} passes"
            if not error <= TOLERANCE[dtype]:
                raise Wrong(
                    f"{name} is wrong in {dtype}: its error should be at most "
                    f"{TOLERANCE[dtype]:.0e}"
                )


def error_of(
    way: Callable,
    dtype: torch.dtype,
    size: int,
    groups: int,
    rows: int,
    branching: bool,
    window: int,
    sunk: bool,
) -> float:
    """How far a way is from float64, for two requests of which one has `rows` rows behind it."""
    kind = partial(ReachRows, reach=Reach(window)) if window else CacheRows
    arena, feeds = Arena([(2, size, size)], dtype, default_device(), kind=kind), []
    for past in (rows, 3):
        tree = TokenTree([0] * past)
        cache = arena.take(past + 16)
        assert cache is not None  # an arena without bounds has room
        arena.append(cache, tree, tree.trunk)
        nodes = [tree.trunk[-1]]
        for i in range(7):
            nodes.append(tree.add(nodes[i // 2] if branching else nodes[-1], 0))
        feeds.append(Feed(tree, cache, nodes[1:], []))
    packing: Any = pack(feeds, arena, window=window).packing
    draw = torch.Generator().manual_seed(0)
    for tensor in (*arena.keys, *arena.values):
        tensor.copy_(torch.randn(tensor.shape, generator=draw))
    q = torch.randn(2 * groups, len(packing.rows), size, generator=draw).to(default_device(), dtype)
    sinks = torch.randn(2 * groups, generator=draw).to(dtype) if sunk else None
    plan = packing.segments, packing.table, packing.masks, packing.biases
    tensors: Any = (q, packing.keys[0], packing.values[0], *plan)
    rest: Any = (size**-0.5, 0.0, window)
    ours = way(*tensors, *rest, None if sinks is None else sinks.to(default_device()))
    fine: Any = [t.cpu().double() if t.is_floating_point() else t.cpu() for t in tensors]
    fine += [*rest, None if sinks is None else sinks.double()]
    exact = operator.attend_one_by_one(*fine)
    return (ours.cpu() - exact).abs().max().item()
