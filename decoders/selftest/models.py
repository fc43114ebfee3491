"""Sections `passes`, `whole` and `draws`: compared with plain passes and with the CPU."""

from collections.abc import Iterator
from typing import Any

import torch

from decoders import ModelPair, catalog, generate
from decoders.distribution import Whole
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes.packed import PackedPasses
from decoders.sampling import SeededSource
from decoders.selftest.common import PROMPTS, Wrong, device, llama, recorded
from decoders.tree import TokenTree
from decoders.warp import Warping, warp

# Of a whole model's logits, relative to their length.
WHOLE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def passes() -> Iterator[str]:
    """Recorded passes, CUDA graphs on a GPU: each decoder's tokens, compared with plain passes."""
    kind, dtype = recorded()
    model, draft = llama(dtype), llama(dtype, num_hidden_layers=1)
    pairs = [ModelPair(model, draft, passes=each) for each in (kind, "plain")]
    for name in catalog:
        options = {"max_new_tokens": 16, "ignore_eos": True, "seed": 1}
        ours, plain = (
            [r.tokens for r in generate(pair, PROMPTS, name, **options)] for pair in pairs
        )
        if ours != plain:
            raise Wrong(f"{name} gives other tokens with recorded passes than with plain ones")
    engines = {packed.engine_name for packed in pairs[0].packed.values()}
    if not all("replayed" in name for name in engines):
        raise Wrong(f"the passes are not recorded, they run as {' and '.join(engines)}")
    yield (
        f"{' and '.join(engines)}, {str(dtype)[6:]}: {len(catalog)} decoders, "
        f"{len(PROMPTS)} requests each, the same tokens"
    )


def whole() -> Iterator[str]:
    """A model on this device compared with float64 on the CPU.

    The error of its logits in each number type, and in float64 the same tokens from every decoder.
    """
    there, here = llama(), llama().cpu()
    for dtype, allowed in WHOLE.items():
        exact = logits_of(llama(dtype).cpu().double())
        error = float((logits_of(llama(dtype)) - exact).norm() / exact.norm())
        yield f"{str(dtype)[6:]}: prompts, chains and trees, error {error:.1e}"
        if not error <= allowed:
            raise Wrong(
                f"a whole model is wrong in {dtype}: its error should be at most {allowed:.0e}"
            )
    if device().type == "cpu":
        yield "A comparison of tokens with the CPU needs a GPU: left out."
        return
    for name in catalog:
        options = {"max_new_tokens": 16, "ignore_eos": True, "seed": 2}
        ours, cpu = (
            [r.tokens for r in generate(ModelPair(m, m), PROMPTS, name, **options)]
            for m in (there, here)
        )
        if ours != cpu:
            raise Wrong(f"{name} gives other tokens on {device()} than on the CPU")
    yield f"{len(catalog)} decoders, {len(PROMPTS)} requests each: the tokens of the CPU"


def logits_of(model: Any) -> torch.Tensor:
    """The logits (n, V) of passes, on the host in float64.

    The passes are of all prompts, of a chain after each, and of a tree after these.
    """
    engine, trees, found = (
        PackedPasses(PackedModel(model, "target", passes="plain")),
        [TokenTree(p) for p in PROMPTS],
        [],
    )
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
    if device().type == "cpu":
        yield "A comparison of draws with the CPU needs a GPU: left out."
        return
    logits = (
        torch.randn(100, 4096, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    )
    for warping in (Warping(), Warping(0.7, 20, 0.9), Warping(1.3, 0, 0.95)):
        drawn = []
        for where in ("cpu", device()):
            source = SeededSource(0)
            drawn.append([source.draw(Whole(row), 100) for row in warp(logits.to(where), warping)])
        differing = sum(
            a != b for ours, cpu in zip(*drawn, strict=True) for a, b in zip(ours, cpu, strict=True)
        )
        yield f"{warping}: {differing} of 10,000 differ"
        # A uniform number may fall on the edge between two tokens, which rounding moves.
        if differing > 2:
            raise Wrong(f"draws differ between {device()} and the CPU")
