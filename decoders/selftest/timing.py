"""Section `speed`: how near passes come to the speed of this machine's memory."""

import statistics
import time
from collections.abc import Callable, Iterator

import torch

from decoders.engine.models.packed import PackedModel
from decoders.engine.passes.packed import PackedPasses
from decoders.selftest.common import device, llama, recorded
from decoders.tree import TokenTree

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


def speed() -> Iterator[str]:
    """Milliseconds of a pass of one token and of eight, and the least time to read the weights.

    The models are random, with grouped heads.
    """
    names, dtype = (
        (["1B", "7B"], torch.bfloat16) if device().type == "cuda" else (["28M"], torch.float32)
    )
    rate = bandwidth()
    yield f"memory is read at {rate / 1e9:.0f} GB/s"
    for name in names:
        vocabulary = 4096 if name == "28M" else 32000
        model = llama(dtype, **SIZES[name], vocab_size=vocabulary, initializer_range=0.02)
        for kind in ("plain", recorded()[0]):
            packed = PackedModel(model, "target", passes=kind)
            times = [seconds_of_pass(packed, tokens) for tokens in (1, 8)]
            floor = packed.weight_bytes / rate
            yield (
                f"{name}, {kind}: one token {1e3 * times[0]:.2f} ms ({floor / times[0]:.0%} of the "
                f"floor of {1e3 * floor:.2f} ms), "
                f"eight {1e3 * times[1]:.2f} ms"
            )


def bandwidth() -> float:
    """Bytes per second that a sum over 256 MiB reads."""
    data = torch.ones(2**26, device=device())
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
    wait = torch.cuda.synchronize if device().type == "cuda" else lambda: None
    seconds = []
    for _ in range(repeats + 3):
        wait()
        began = time.perf_counter()
        action()
        wait()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[3:])
