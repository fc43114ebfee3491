"""Sections `passes`, `whole` and `draws`: compared with plain passes and with the CPU; `speed`."""

import statistics
import timeit
from collections.abc import Callable, Iterator
from typing import Any

import torch

from decoders import ModelPair, catalog, default_device, generate
from decoders.distribution import Warping, Whole, warp
from decoders.engine.models.packed import PASSES, PackedModel
from decoders.engine.passes.packed import PackedPasses
from decoders.randomness import SeededSource
from decoders.selftest.common import PROMPTS, Wrong, llama
from decoders.tree import TokenTree

# Of a whole model's logits, relative to their length.
WHOLE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
SIZES = {
    "28M": {
        "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 4,
    },
    "1B": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8,
    },
    "7B": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8,
    },
}  # fmt: skip


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
    trees, found = [TokenTree(p) for p in PROMPTS], []
    asked = {tree: tree.trunk[-1:] for tree in trees}
    for grown in (0, 3, 6):
        for tree in trees:
            if not grown:
                engine.admit(tree, 64)
                continue
            tip, asked[tree] = asked[tree][-1], []
            for i in range(grown):
                parent = [tip, *asked[tree]][i if grown == 3 else i // 2]
                asked[tree].append(tree.add(parent, 7 * i))
        found.append(engine.run(list(asked.items()))[0].rows.cpu().double())
    return torch.cat(found)


def draws() -> Iterator[str]:
    """10,000 tokens drawn here with temperature, top-k and top-p, compared with the CPU's."""
    if default_device().type == "cpu":
        yield "A comparison of draws with the CPU needs a GPU: left out."
        return
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(100, 4096, generator=draw, dtype=torch.float64)
    for warping in (Warping(), Warping(0.7, 20, 0.9), Warping(1.3, 0, 0.95)):
        drawn = []
        for where in ("cpu", default_device()):
            source = SeededSource(0)
            drawn.append([source.draw(Whole(row), 100) for row in warp(logits.to(where), warping)])
        differing = sum(
            a != b for ours, cpu in zip(*drawn, strict=True) for a, b in zip(ours, cpu, strict=True)
        )
        yield f"{warping}: {differing} of 10,000 differ"
        # A uniform number may fall on the edge between two tokens, which rounding moves.
        if differing > 2:
            raise Wrong(f"draws differ between {default_device()} and the CPU")


def speed() -> Iterator[str]:
    """Milliseconds of a pass of one token and of eight, and the least time to read the weights.

    The models are random, with grouped heads.
    """
    on_gpu = default_device().type == "cuda"
    dtype, vocabulary = (torch.bfloat16, 32000) if on_gpu else (torch.float32, 4096)
    rate = bandwidth()
    yield f"memory is read at {rate / 1e9:.0f} GB/s"
    for name in ("1B", "7B") if on_gpu else ("28M",):
        model = llama(dtype, **SIZES[name], vocab_size=vocabulary, initializer_range=0.02)
        for kind in PASSES:
            packed = PackedModel(model, "target", passes=kind)
            times = [seconds_of_pass(packed, tokens) for tokens in (1, 8)]
            floor = packed.bytes_read(1) / rate
            yield (
                f"{name}, {kind}: one token {1e3 * times[0]:.2f} ms ({floor / times[0]:.0%} of the "
                f"floor of {1e3 * floor:.2f} ms), "
                f"eight {1e3 * times[1]:.2f} ms"
            )


def bandwidth() -> float:
    """Bytes per second that a sum over 256 MiB reads."""
    data = torch.ones(2**26, device=default_device())
    return data.nbytes / median_seconds(data.sum)


def seconds_of_pass(packed: PackedModel, tokens: int) -> float:
    """Seconds of a pass of one request with 64 rows behind it, packing included."""
    engine, tree = PackedPasses(packed), TokenTree([1 + i % 60 for i in range(64)])
    engine.admit(tree, 256)
    engine.run([(tree, tree.trunk[-1:])])

    def one() -> None:
        tree.keep([tree.trunk[63]])
        nodes = [tree.trunk[63]]
        for token in range(tokens):
            nodes.append(tree.add(nodes[-1], token))
        engine.run([(tree, nodes[1:])])

    return median_seconds(one)


def median_seconds(action: Callable[[], object], repeats: int = 20) -> float:
    """The median of `repeats` runs, after three that warm up."""
    wait = torch.cuda.synchronize if default_device().type == "cuda" else lambda: None

    def timed() -> None:
        action()
        wait()

    return statistics.median(timeit.repeat(timed, setup=wait, number=1, repeat=repeats + 3)[3:])
