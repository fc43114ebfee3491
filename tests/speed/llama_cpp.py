"""The embedded pair beside llama.cpp: greedy, speculative decoding, a batch of 8, in one run.

    make engines      # once: builds llama.cpp and writes the pair as GGUF
    OMP_NUM_THREADS=1 python -m tests.speed.llama_cpp [--threads 1] [--prompts 4] [--tokens 64]
                                                      [--rounds 7] [--lengths 2 3] [--pair FOLDER]

T=0, the same weights in float16, the same token ids, prompts left out. Greedy decoding and batches
run llama.cpp's library from a loop without a server; it speculates in its server only, by whose
clock it is measured. Each has a process that waits while another works. Prints Markdown: medians
over rounds with the least and the most, a ratio is the median of the rounds' ratios, and texts that
differ have a verdict. One minute for each number of threads.

    python -m tools.engines.serve vllm vllm-draft      # prints their addresses
    OMP_NUM_THREADS=1 python -m tests.speed.llama_cpp --served vllm=http://127.0.0.1:8000

sets servers beside greedy decoding, and those whose name ends with "-draft" beside speculative
decoding with 3 draft tokens; they are measured from outside.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import decoders
from tests.speed.contenders import Contender, Decoded, Library, in_turn, llama_served, ours, served
from tools.engines.convert import write
from tools.engines.places import STORIES, Places
from tools.engines.servers import llama_server, running

BATCH = 8
GREEDY, SMALL, BATCHED = "greedy", "greedy, the draft alone", f"greedy, batch of {BATCH}"


@dataclass(frozen=True)
class Row:
    """A line of the table: who of us is set beside whom, on which model, with how many prompts."""

    name: str
    ours: Contender
    theirs: Contender
    pair: decoders.ModelPair
    prompts: list[list[int]]
    dtype: str = "float16"  # the coarser one of both


def drafting(length: int) -> str:
    return f"speculative, {length} draft tokens"


@contextmanager
def rows(args: argparse.Namespace, places: Places) -> Iterator[list[Row]]:
    """All lines, with everybody ready."""
    files = {name: places.root / f"{args.pair.name}-{name}.gguf" for name in ("target", "draft")}
    for name, file in files.items():
        write(args.pair / name, file)
    pair, small = decoders.load_pair(args.pair), decoders.load_pair(args.pair / "draft")
    texts = json.loads((STORIES / "prompts.json").read_text(encoding="utf-8"))["openings"]
    ids = [list(pair.tokenizer(text).input_ids) for text in texts[: max(args.prompts, BATCH)]]
    few, many, tokens = ids[: args.prompts], ids[:BATCH], args.tokens
    greedy, speculative = decoders.catalog["greedy"](), decoders.catalog["speculative"]
    with ExitStack() as stack:

        def library(name: str, sequences: int = 1) -> Contender:
            found = Library(places, files[name], args.threads, sequences, tokens)
            stack.callback(found.close)
            return found

        def server(length: int) -> Contender:
            made = llama_server(places, files["target"], files["draft"], length, args.threads)
            return in_turn(llama_served(stack.enter_context(running(made)), tokens))

        def own(method: decoders.Method, on: decoders.ModelPair = pair) -> Contender:
            return in_turn(ours(on, method, tokens))

        found = [
            Row(GREEDY, own(greedy), in_turn(library("target")), pair, few),
            Row(SMALL, own(greedy, small), in_turn(library("draft")), small, few),
            Row(BATCHED, ours(pair, greedy, tokens), library("target", BATCH), pair, many),
        ]
        for length in args.lengths:
            method = speculative(draft_length=length, confidence=0.0)
            found.append(Row(drafting(length), own(method), server(length), pair, few))
        for name, url in args.served:
            method = speculative(draft_length=3, confidence=0.0)
            mine = own(method if name.endswith("-draft") else greedy)
            found.append(Row(name, mine, in_turn(served(name, url, tokens)), pair, few, "bfloat16"))
        yield found


def measured(lines: Sequence[Row], count: int) -> dict[str, list[tuple[Decoded, Decoded]]]:
    """What we and they did in each round, after one to warm up; every other round is reversed."""
    found: dict[str, list[tuple[Decoded, Decoded]]] = {row.name: [] for row in lines}
    for i in range(-1, count):
        for row in lines[:: -1 if i % 2 else 1]:
            both = [decode(row.prompts) for decode in (row.ours, row.theirs)[:: -1 if i % 2 else 1]]
            if i >= 0:
                a, b = both[:: -1 if i % 2 else 1]
                found[row.name].append((a, b))
    return found


def ranged(values: Sequence[float], digits: int = 0) -> str:
    """The median with the least and the most."""
    shown = [
        f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    ]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def speed(found: Decoded) -> float:
    return found.timed / found.seconds


def acceptance(found: Decoded) -> str:
    return f"{found.accepted / found.drafted:.2f}" if found.drafted else ""


def verdicts(row: Row, mine: Decoded, theirs: Decoded) -> str:
    """How many texts are the same, and why others are not."""
    said: Counter[str] = Counter()
    for ids, a, b in zip(row.prompts, mine.texts, theirs.texts, strict=True):
        found = decoders.compare_greedy(row.pair, ids, a, b, dtype=row.dtype) if a != b else None
        said[found.verdict if found else "same"] += 1
    return ", ".join(f"{count} {verdict}" for verdict, count in said.items())


def table(
    lines: Sequence[Row], found: Mapping[str, list[tuple[Decoded, Decoded]]]
) -> Iterator[str]:
    yield "| | ours, tokens/s | theirs, tokens/s | ours / theirs | accepted | texts |"
    yield "|---|--:|--:|--:|--:|---|"
    for row in lines:
        rounds = found[row.name]
        mine, theirs = zip(*rounds, strict=True)
        a, b = (list(map(speed, each)) for each in (mine, theirs))
        ratios = [x / y for x, y in zip(a, b, strict=True)]
        accepted = " / ".join(filter(None, map(acceptance, rounds[-1])))
        yield (
            f"| {row.name} | {ranged(a)} | {ranged(b)} | {ranged(ratios, 2)} | {accepted} | "
            f"{verdicts(row, *rounds[-1])} |"
        )


def gains(
    found: Mapping[str, list[tuple[Decoded, Decoded]]], lengths: Sequence[int]
) -> Iterator[str]:
    """Speculative decoding over llama.cpp's greedy decoding."""
    base = [speed(theirs) for _, theirs in found[GREEDY]]
    for length in lengths:
        for who, which in (("ours", 0), ("llama.cpp's", 1)):
            rounds = [speed(both[which]) for both in found[drafting(length)]]
            ratios = [a / b for a, b in zip(rounds, base, strict=True)]
            yield f"- {who}, {length} draft tokens: {ranged(ratios, 2)} times llama.cpp's greedy"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lengths", type=int, nargs="*", default=[2, 3])
    parser.add_argument("--pair", type=Path, default=STORIES, help="a folder of target/ and draft/")
    parser.add_argument("--served", nargs="*", default=[], type=lambda text: text.split("=", 1))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended."))  # servers end then, too
    torch.set_num_threads(args.threads)
    began, load = time.monotonic(), os.getloadavg()[0]
    print(
        f"{args.threads} threads, {args.prompts} prompts, {args.tokens} tokens, {args.rounds} "
        f"rounds; load average {load:.1f} before\n"
    )
    with rows(args, Places()) as lines:
        found = measured(lines, args.rounds)
        print("\n".join([*table(lines, found), "", *gains(found, args.lengths)]))
    print(f"\n{time.monotonic() - began:.0f} s; load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
