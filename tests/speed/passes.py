"""Passes of the embedded pair, plain and as a program, and whole texts beside `generate`.

    python -m tests.speed.passes [threads]

Interleaved, in one process; `generate` is that of transformers."""

import statistics
import sys
import time
from collections.abc import Callable

import torch

from decoders import ModelPair, generate, load_pair
from decoders.engine.passes.packed import PackedPasses
from decoders.tree import TokenTree
from tests.speed.engine import interleaved, times_as_fast

PAST, REPEATS, TOKENS = 100, 60, 64
TEXT = "Once upon a time there was a little girl named Lily."


def a_pass(
    pair: ModelPair, role: str, tokens: int
) -> tuple[Callable[[], object], Callable[[], object]]:
    """The model's part and the packing of a pass of `tokens` tokens with PAST rows before them."""
    packed = pair.packed[role]
    engine, tree = PackedPasses(packed), TokenTree([i % 100 + 5 for i in range(PAST)])
    engine.admit(tree, PAST + 2 * tokens)
    engine.run([(tree, tree.trunk[-1:])])
    nodes = [tree.trunk[-1]]
    for i in range(tokens):
        nodes.append(tree.add(nodes[-1], 7 + i))
    feeds = engine.feeds([(tree, nodes[1:])], None)
    inputs = engine.pack(feeds)

    def pack() -> None:
        for _ in range(tokens):
            feeds[0].cache.drop_last()
        engine.pack(feeds)

    return lambda: packed(inputs), pack


def main(threads: int) -> None:
    torch.set_num_threads(threads)
    pairs = {}
    for passes in ("plain", "program"):
        began = time.process_time()
        pairs[passes] = load_pair(passes=passes)
        print(
            f"{passes}: loaded in {time.process_time() - began:.2f} s of CPU time, {threads} "
            "threads"
        )
    print("\n| model | tokens | plain ms | program ms | packing ms |\n|---|--:|--:|--:|--:|")
    for role in ("draft", "target"):
        for tokens in (1, 2, 5, 9, 17, 33, 65):
            plain, _ = a_pass(pairs["plain"], role, tokens)
            program, pack = a_pass(pairs["program"], role, tokens)
            took = interleaved({"plain": plain, "program": program, "pack": pack}, REPEATS)
            cells = " | ".join(
                f"{1e3 * statistics.median(seconds):.3f}" for seconds in took.values()
            )
            print(f"| {role} | {tokens} | {cells} |", flush=True)
    ids = pairs["plain"].tokenizer(TEXT, return_tensors="pt")
    options = {
        "max_new_tokens": TOKENS,
        "min_new_tokens": TOKENS,
        "do_sample": False,
        "pad_token_id": 0,
    }
    runs = {"transformers": lambda: pairs["plain"].target.generate(**ids, **options)}
    for passes, pair in pairs.items():
        for name in ("greedy", "speculative", "mtad"):
            runs[f"{name}, {passes}"] = lambda name=name, pair=pair: generate(
                pair, TEXT, name, max_new_tokens=TOKENS, temperature=0, ignore_eos=True
            )
    took = interleaved(runs, 7)
    print("\n| decoder, passes | tokens/s | over transformers |\n|---|--:|--:|")
    for name, seconds in took.items():
        print(
            f"| {name} | {TOKENS / statistics.median(seconds):.0f} | "
            f"{times_as_fast(took, name, 'transformers')} |"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else torch.get_num_threads())
