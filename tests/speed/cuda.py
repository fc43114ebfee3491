"""Passes on a CUDA device: their time beside the time it takes to read weights and caches once.

First by the way that passes attend; then whole texts, by the way that passes run. Except for the
embedded pair, weights are random, which cost the same time.

    python -m tests.speed.cuda            all models
    python -m tests.speed.cuda opt-125m   one of them
"""

import statistics
import sys
import time
from collections.abc import Callable
from unittest import mock

import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM, OPTConfig

from decoders import ModelPair, generate, load_pair
from decoders.engine import pack as packing
from decoders.engine.attention import interface as attention
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.selftest import SIZES, llama
from decoders.tree import TokenTree

PAST, REPEATS = 400, 10
OPT = {
    "opt-6.7b": {
        "hidden_size": 4096,
        "ffn_dim": 16384,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "opt-125m": {
        "hidden_size": 768,
        "ffn_dim": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
}


LLAMA = {"llama-1b": "1B", "llama-7b": "7B"}  # with grouped heads
DECODERS = "greedy", "speculative", "mtad", "dsbd"


def build(name: str) -> PackedModel:
    """A model whose passes are plain: a graph knows one way to attend."""
    if name == "stories":
        return load_pair(device="cuda", passes="plain").packed["target"]
    if name in LLAMA:
        return PackedModel(random_llama(**SIZES[LLAMA[name]]), "target", passes="plain")
    config = OPTConfig(**OPT[name], word_embed_proj_dim=OPT[name]["hidden_size"])
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    return PackedModel(model.eval(), "target", passes="plain")


def random_llama(**sizes: int) -> LlamaForCausalLM:
    return llama(torch.bfloat16, **{**sizes, "vocab_size": 32000, "initializer_range": 0.02})


def whole_texts(name: str, rate: float) -> None:
    """64 tokens by each decoder with a draft of two layers, by the way that passes run.

    ms per target pass and share of the floor."""
    target = random_llama(**SIZES[LLAMA[name]])
    draft = random_llama(**{**SIZES[LLAMA[name]], "num_hidden_layers": 2})
    for passes in ("plain", "program"):
        pair = ModelPair(target, draft, passes=passes)
        for decoder in DECODERS:

            def run(pair=pair, decoder=decoder):
                options = {"max_new_tokens": 64, "ignore_eos": True, "top_k": 20, "top_p": 0.9}
                return generate(pair, list(range(5, 69)), decoder, **options)

            seconds, metrics = median_seconds(run), run().metrics
            share = metrics.bytes_read / rate / seconds
            print(
                (
                    f"| {name} | {passes} | {decoder} | "
                    f"{1e3 * seconds / metrics.target_calls:.2f} | {share:.0%} |"
                ),
                flush=True,
            )


def bandwidth() -> float:
    """Bytes a second that a copy on the device reads and writes."""
    a = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * len(a) / median_seconds(lambda: b.copy_(a))


def median_seconds(
    action: Callable[[], object], reset: Callable[[], object] = lambda: None
) -> float:
    """Of REPEATS runs after three that warm up; `reset` is not counted."""
    seconds = []
    for _ in range(REPEATS + 3):
        reset()
        torch.cuda.synchronize()
        began = time.perf_counter()
        action()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[3:])


def attend_to_nothing(q, keys, values, *others):
    """The time of a pass without its attention."""
    return q.new_zeros(q.shape[1], q.shape[0], values.shape[-1])


def measure(
    packed: PackedModel, batch: int, tokens: int, shape: str, way: Callable
) -> tuple[float, int]:
    """Seconds of a pass of `batch` requests with PAST rows each, and the bytes that it reads.

    Each has `tokens` new tokens; packing is included."""
    engine = PackedPasses(packed)
    trees = [TokenTree([i % 100 + 5 for i in range(PAST)]) for _ in range(batch)]
    for tree in trees:
        engine.admit(tree, PAST + 2 * tokens)
    engine.run([(tree, tree.trunk[-1:]) for tree in trees])
    wants = []

    def draft():
        wants.clear()
        for tree in trees:
            tree.keep([tree.trunk[PAST - 1]])
            nodes = [tree.trunk[-1]]
            for token in range(tokens):
                nodes.append(tree.add(nodes[-1] if shape == "chain" else nodes[token // 2], token))
            wants.append((tree, nodes[1:]))

    biased = way is attention.attend_one_by_one
    with (
        mock.patch.object(attention, "choose_way", return_value=way),
        mock.patch.object(packing, "needs_biases", return_value=biased),
    ):
        seconds = median_seconds(lambda: engine.run(wants), draft)
    return seconds, packed.weight_bytes + sum(
        engine.rows_of(tree) for tree in trees
    ) * packed.row_bytes


def main(names: list[str]) -> None:
    if not torch.cuda.is_available():
        sys.exit("There is no CUDA device here; run this on a machine that has one.")
    rate = bandwidth()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copies move "
        f"{rate / 1e12:.2f} TB/s\n"
    )
    ways = {
        "Triton": attention.attend_with_triton,
        "one by one": attention.attend_one_by_one,
        "no attention": attend_to_nothing,
    }
    if attention.FLASH:
        ways = {"FlashAttention": attention.attend_chains, **ways}
    print(
        "| model | requests | new tokens each | memory floor ms |",
        " | ".join(f"{way} ms" for way in ways),
        "|",
    )
    print("|---|--:|---|--:|" + "--:|" * len(ways))
    for name in names:
        packed = build(name)
        for batch in (1, 8, 24):
            for tokens, shape in ((1, "chain"), (5, "chain"), (16, "tree")):
                cells = []
                for title, way in ways.items():
                    if title == "FlashAttention" and shape == "tree":
                        cells.append("chains only")
                        continue
                    seconds, read = measure(packed, batch, tokens, shape, way)
                    cells.append(f"{seconds * 1e3:.2f}")
                print(
                    f"| {name} | {batch} | {tokens}, {shape} | {read / rate * 1e3:.2f} |",
                    " | ".join(cells),
                    "|",
                    flush=True,
                )
    print(
        "\n| model | passes | decoder | ms a target pass, drafts included | share of the floor |\n"
        "|---|---|---|--:|--:|"
    )
    for name in set(names) & set(LLAMA):
        whole_texts(name, rate)


if __name__ == "__main__":
    main(sys.argv[1:] or ["stories", *OPT, *LLAMA])
