"""What `draft_length="auto"` costs or gains beside greedy decoding, in batches, on two texts.

    python -m tests.speed.auto [--pair FOLDER] [--sizes 1 4 16] [--tokens 128] [--rounds 7]
                               [--threads 1] [--fixed 4] [--cpu]

Easy text repeats itself (`assets/batch/refrains.jsonl`); hard text is openings whose words are
shuffled, decoded at temperature 1 without truncation. At temperature 0 the rival is greedy
decoding, at temperature 1 sampling; a fixed length stands beside, and the rival once more, which
says how far two runs of one program are apart here. Runs are interleaved. Seconds are those after
the first round of each request, which reads the prompt. Prints Markdown; a ratio is the median of
the rounds' ratios, with the least and the most: above 1, drafting is quicker.
"""

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import decoders
from decoders.heap import light_heap
from tests.speed.engine import interleaved
from tests.speed.lookup import prompts


def shuffled(text: str, seed: int) -> str:
    words = text.split()
    random.Random(seed).shuffle(words)
    return " ".join(words)


def cases(size: int) -> dict[str, tuple[list[str], float]]:
    """Prompts and temperature of each text."""
    texts = prompts()
    easy = [texts["refrains"][i % len(texts["refrains"])] for i in range(size)]
    hard = [shuffled(text, i) for i, text in enumerate(texts["openings"][:size])]
    return {"easy, T=0": (easy, 0.0), "hard, T=0": (hard, 0.0), "hard, T=1": (hard, 1.0)}


class Run:
    """Decodes a batch; keeps the seconds a token after all first rounds, and the draft lengths."""

    def __init__(
        self,
        pair: decoders.ModelPair,
        method: decoders.Method,
        texts: Sequence[str],
        clock: Callable[[], float],
        **options: Any,
    ):
        self.stream = lambda: decoders.stream(
            pair, list(texts), method, seed=0, ignore_eos=True, clock=clock, **options
        )
        self.clock, self.size = clock, len(texts)
        self.seconds: list[float] = []
        self.lengths: list[float] = []

    def __call__(self) -> None:
        begun, tokens, began, drafted = set(), 0, 0.0, []
        for event in self.stream():
            if event.round is None:
                continue
            if len(begun) == self.size:
                tokens += len(event.append)
                drafted.append(event.round.drafted)
            else:
                begun.add(event.request)
                began = self.clock()
        self.seconds.append((self.clock() - began) / tokens)
        self.lengths.append(statistics.fmean(drafted))


def against(ours: Run, rival: Run) -> str:
    ratios = [b / a for a, b in zip(ours.seconds[1:], rival.seconds[1:], strict=True)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fixed", type=int, default=4)
    parser.add_argument("--cpu", action="store_true", help="processor seconds, on a busy machine")
    args = parser.parse_args()
    clock = time.process_time if args.cpu else time.perf_counter
    torch.set_num_threads(args.threads)
    pair = decoders.load_pair(args.pair) if args.pair else decoders.load_pair()
    print(
        f"{args.tokens} tokens, {args.rounds} rounds, {args.threads} threads; load average "
        f"{os.getloadavg()[0]:.1f}\n\n| text | batch | auto over plain | fixed {args.fixed} over "
        "plain | plain over plain | auto's mean length |\n|---|--:|--:|--:|--:|--:|"
    )
    with light_heap():
        for size in args.sizes:
            for name, (texts, temperature) in cases(size).items():
                options = {"max_new_tokens": args.tokens, "temperature": temperature}
                plain = "multinomial" if temperature else "greedy"
                methods = {
                    "plain": decoders.catalog[plain](),
                    "auto": decoders.catalog["speculative"](draft_length="auto"),
                    "fixed": decoders.catalog["speculative"](draft_length=args.fixed),
                    "again": decoders.catalog[plain](),
                }
                runs = {key: Run(pair, m, texts, clock, **options) for key, m in methods.items()}
                interleaved(runs, args.rounds)
                ratios = [against(runs[key], runs["plain"]) for key in ("auto", "fixed", "again")]
                length = f"{statistics.fmean(runs['auto'].lengths):.1f}"
                print("|", " | ".join((name, str(size), *ratios, length)), "|", flush=True)


if __name__ == "__main__":
    main()
