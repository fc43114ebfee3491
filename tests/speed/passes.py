"""Passes of the embedded pair, plain and as a program, and whole texts beside `generate`.

    python -m tests.speed.passes [threads]
    python -m tests.speed.passes [threads] smollm2 [rows]

Interleaved, in one process; `generate` is that of transformers. With the name of a pair only the
target's passes as a program, over one of one token, after so many rows (100)."""

import statistics
import sys
import time
from collections.abc import Callable

import torch

from decoders import ModelPair, generate, load_pair
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests.speed.engine import interleaved, times_as_fast

PAST, REPEATS, TOKENS = 100, 60, 64
TEXT = "Once upon a time there was a little girl named Lily."


def a_pass(
    pair: ModelPair, role: str, tokens: int, past: int = PAST
) -> tuple[Callable[[], object], Callable[[], object]]:
    """The model's part and the packing of a pass of so many tokens with `past` rows before them."""
    packed = pair.packed[role]
    engine, tree = PackedPasses(packed), TokenTree([i % 100 + 5 for i in range(past)])
    engine.admit(tree, past + 2 * tokens)
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


def by_tokens(threads: int, name: str, past: int = PAST) -> None:
    """Print what passes of several tokens take over one of one."""
    torch.set_num_threads(threads)
    pair = load_pair(name)
    runs = {str(n): a_pass(pair, "target", n, past)[0] for n in (*range(1, 7), 8, 9, 16, 33, 64)}
    took = interleaved(runs, 15)
    print(f"\n{name}, {threads} threads, after {past} rows")
    print("\n| tokens | ms | over one |\n|--:|--:|--:|")
    for tokens in runs:
        ratio = statistics.median(took[tokens]) / statistics.median(took["1"])
        print(f"| {tokens} | {1e3 * statistics.median(took[tokens]):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    threads = int(sys.argv[1]) if sys.argv[1:] else torch.get_num_threads()
    if sys.argv[2:]:
        by_tokens(threads, sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main(threads)
