"""`python -m decoders.selftest`: whether everything runs right on this machine.

Each section runs in its own process, because an illegal address on a GPU spoils the process in
which it happens. Sections that need a GPU say so and are left out without one. Exit code 0 means
that all is well. `python -m decoders.selftest NAME` runs one section in this process.
"""

import itertools
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig

from decoders import ModelPair, catalog, default_device, generate
from decoders.distribution import Warping, Whole, warp
from decoders.engine.attention import interface
from decoders.engine.cache import Arena, CacheRows, Reach, ReachRows
from decoders.engine.models.packed import PASSES, PackedModel
from decoders.engine.pack import Feed, pack
from decoders.engine.passes import PackedPasses
from decoders.request import SeededSource
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
    with default_device():
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
            f"FlashAttention {'may be' if interface.FLASH else 'is not'} taken, "
            f"Triton {'may be' if interface.TRITON else 'is not'}"
        )
    else:
        yield "There is no CUDA device: kernels are left out, everything else runs on the CPU."


def ways() -> Iterator[str]:
    """The error of each way to attend, compared with float64.

    Heads of 64 to 256, 1 to 8 query heads per key head, 1 to 4,000 rows, with and without a window
    and sinks.
    """
    taken: dict[str, Callable] = {"one by one": interface.attend_one_by_one}
    if default_device().type == "cuda" and torch.cuda.get_device_capability() >= (8, 0):
        taken |= {"Triton": interface.attend_with_triton} if interface.TRITON else {}
        taken |= {"FlashAttention": interface.attend_chains} if interface.FLASH else {}
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
    rest = 0, size**-0.5, 0.0
    ours = way(q, packing, *rest, None if sinks is None else sinks.to(default_device()))
    keys, values = ([t[0].cpu().double()] for t in (packing.keys, packing.values))
    fine = replace(packing, keys=keys, values=values, masks=packing.masks.cpu())
    sinks = None if sinks is None else sinks.double()
    exact = interface.attend_one_by_one(q.cpu().double(), fine, *rest, sinks)
    return (ours.cpu() - exact).abs().max().item()


# Of a whole model's logits, relative to their length.
WHOLE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def passes() -> Iterator[str]:
    """Programs (CUDA graphs on a GPU): each decoder's tokens, compared with plain passes."""
    dtype = torch.float32  # which kernels and graphs take
    model, draft = llama(dtype), llama(dtype, num_hidden_layers=1)
    pairs = [ModelPair(model, draft, passes=each) for each in PASSES]
    for name in catalog:
        ours, plain = (tokens_of(pair, name, seed=1) for pair in pairs)
        if ours != plain:
            raise Wrong(f"{name} gives other tokens with programs than with plain passes")
    engines = {packed.engine_name for packed in pairs[0].packed.values()}
    if any("module by module" in name for name in engines):
        raise Wrong(f"the passes are no programs, they run as {' and '.join(engines)}")
    yield (
        f"{' and '.join(engines)}, {str(dtype)[6:]}: {len(catalog)} decoders, "
        f"{len(PROMPTS)} requests each, the same tokens"
    )


def tokens_of(pair: ModelPair, name: str, seed: int = 2) -> list[list[int]]:
    options = {"max_new_tokens": 16, "ignore_eos": True, "seed": seed}
    return [result.tokens for result in generate(pair, PROMPTS, name, **options)]


def whole() -> Iterator[str]:
    """A model on this device compared with float64 on the CPU.

    The error of its logits in each number type, and in float64 the same tokens from every decoder.
    """
    for dtype, allowed in WHOLE.items():
        exact = logits_of(llama(dtype).cpu().double())
        error = float((logits_of(llama(dtype)) - exact).norm() / exact.norm())
        yield f"{str(dtype)[6:]}: prompts, chains and trees, error {error:.1e}"
        if not error <= allowed:
            raise Wrong(
                f"a whole model is wrong in {dtype}: its error should be at most {allowed:.0e}"
            )
    if default_device().type == "cpu":
        yield "A comparison of tokens with the CPU needs a GPU: left out."
        return
    # If the draft is the target itself, chances are equal but for rounding, which then decides.
    there, here = (
        ModelPair(*(llama(num_hidden_layers=layers).to(place) for layers in (2, 1)))
        for place in (default_device(), "cpu")
    )
    for name in catalog:
        if tokens_of(there, name) != tokens_of(here, name):
            raise Wrong(f"{name} gives other tokens on {default_device()} than on the CPU")
    yield f"{len(catalog)} decoders, {len(PROMPTS)} requests each: the tokens of the CPU"


def logits_of(model: Any) -> torch.Tensor:
    """The logits (n, V) of passes, on the host in float64.

    The passes are of all prompts, of a chain after each, and of a tree after these.
    """
    engine = PackedPasses(PackedModel(model, "target", passes="plain"))
    trees, rows = [TokenTree(p) for p in PROMPTS], []
    nodes = {tree: tree.trunk[-1:] for tree in trees}
    for grown in (0, 3, 6):
        for tree in trees:
            if not grown:
                engine.admit(tree, 64)
                continue
            tip, nodes[tree] = nodes[tree][-1], []
            for i in range(grown):
                parent = [tip, *nodes[tree]][i if grown == 3 else i // 2]
                nodes[tree].append(tree.add(parent, 7 * i))
        rows.append(torch.as_tensor(engine.run(list(nodes.items()))[0].rows).cpu().double())
    return torch.cat(rows)


def draws() -> Iterator[str]:
    """10,000 tokens drawn here with temperature, top-k and top-p, compared with the CPU's."""
    if default_device().type == "cpu":
        yield "A comparison of draws with the CPU needs a GPU: left out."
        return
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(100, 4096, generator=draw, dtype=torch.float64)
    for warping in (Warping(), Warping(0.7, 20, 0.9), Warping(1.3, 0, 0.95)):
        tokens = []
        for where in ("cpu", default_device()):
            source = SeededSource(0)
            tokens.append([source.draw(Whole(row), 100) for row in warp(logits.to(where), warping)])
        differing = sum(
            a != b
            for ours, cpu in zip(*tokens, strict=True)
            for a, b in zip(ours, cpu, strict=True)
        )
        yield f"{warping}: {differing} of 10,000 differ"
        # A uniform number may fall on the edge between two tokens, which rounding moves.
        if differing > 2:
            raise Wrong(f"draws differ between {default_device()} and the CPU")


LIMIT = 600  # seconds that one section may take

SECTIONS = {section.__name__: section for section in (machine, ways, draws, passes, whole)}


def run(section: str) -> bool:
    """Print the lines of one section; returns whether all is well."""
    try:
        for line in SECTIONS[section]():
            print(f"  {line}", flush=True)
    except Wrong as error:
        print(f"  WRONG: {error}.", flush=True)
        return False
    return True


def run_all() -> bool:
    failed = []
    for name, section in SECTIONS.items():
        print(f"{name}: {' '.join(str(section.__doc__).split())}", flush=True)
        command = [sys.executable, "-m", "decoders.selftest", name]
        try:
            code: int | str = subprocess.run(command, timeout=LIMIT).returncode
        except subprocess.TimeoutExpired:
            code = f"no end after {LIMIT} s"
        if code != 0:
            failed.append(name)
        # A section that found a fault has said so.
        if code not in (0, 1):
            print(f"  FAILED ({code})", flush=True)
    print("All is well." if not failed else f"Something is wrong: {', '.join(failed)}.")
    return not failed


def main(arguments: list[str]) -> int:
    if not arguments:
        return 0 if run_all() else 1
    if arguments[0] not in SECTIONS or len(arguments) > 1:
        print(f"The sections are {', '.join(SECTIONS)}.", file=sys.stderr)
        return 2
    return 0 if run(arguments[0]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
