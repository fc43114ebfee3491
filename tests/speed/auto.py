"""What `draft_length="auto"` costs or gains beside greedy decoding, in batches, on two texts.

    python -m tests.speed.auto [--pair FOLDER] [--sizes 1 4 16] [--tokens 128] [--rounds 7]
                               [--threads 1] [--fixed 4] [--cpu] [--beams 2 4 8]
                               [--texts usual]

Easy text repeats itself (`assets/batch/refrains.jsonl`); hard text is openings whose words are
shuffled, decoded at temperature 1 without truncation. At temperature 0 the rival is greedy
decoding, at temperature 1 sampling; a fixed length stands beside, and the rival once more, which
says how far two runs of one program are apart here. Runs are interleaved. Seconds are those after
the first round of each request, which reads the prompt. Prints Markdown; a ratio is the median of
the rounds' ratios, with the least and the most: above 1, drafting is quicker.

With `--beams`, the rival is beam search of these widths and what drafts is speculative beam search;
a place of a draft is a layer. Its bookkeeping is what the decoder itself takes on the host, without
passes and what surrounds them.
"""

import argparse
import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch

import decoders
from decoders.process import light_heap
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
        self.width = getattr(method, "draft_width", 1)
        self.seconds: list[float] = []
        self.lengths: list[float] = []
        self.passes: list[float] = []

    def __call__(self) -> None:
        lengths: dict[int, int] = {}
        before, began, drafted = 0, 0.0, []
        for event in self.stream():
            if event.round is None:
                continue
            if len(lengths) == self.size:
                drafted.append(event.round.drafted / self.width)
            lengths[event.request] = event.keep + len(event.append)
            if not drafted:
                before, began = sum(lengths.values()), self.clock()
        tokens = sum(lengths.values()) - before
        self.seconds.append((self.clock() - began) / tokens)
        self.lengths.append(statistics.fmean(drafted))
        self.passes.append(tokens / len(drafted))


def bookkeeping(method: decoders.Method, run: Run, layers: int) -> float:
    """Milliseconds a layer that the decoder itself takes."""
    kind, spent = type(method), 0.0
    decode = kind.decode

    def watched(self: Any, request: Any) -> Any:
        nonlocal spent
        decoding, answer = decode(self, request), None
        while not request.finished:
            began = time.perf_counter()
            item = decoding.send(answer)
            spent += time.perf_counter() - began
            answer = yield item

    with mock.patch.object(kind, "decode", watched):
        run()
    return 1e3 * spent / layers


def against(ours: Run, rival: Run) -> str:
    ratios = [b / a for a, b in zip(ours.seconds[1:], rival.seconds[1:], strict=True)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def searched(size: int) -> dict[str, list[str]]:
    """Prompts of each text, for searches, which have no temperature."""
    usual = {"usual": prompts()["openings"][:size]}
    return usual | {name: texts for name, (texts, heat) in cases(size).items() if not heat}


def beams(
    pair: decoders.ModelPair,
    name: str,
    texts: Sequence[str],
    width: int,
    clock: Callable[[], float],
    args: argparse.Namespace,
) -> list[str]:
    """The cells of one width of speculative beam search beside beam search."""
    ours, plain = (decoders.catalog[n] for n in ("speculative_beam_search", "beam_search"))
    methods = {
        "plain": plain(beams=width),
        "auto": ours(beams=width),
        "fixed": ours(beams=width, draft_length=args.fixed),
        "again": plain(beams=width),
    }
    options = {"max_new_tokens": args.tokens}
    runs = {key: Run(pair, m, texts, clock, **options) for key, m in methods.items()}
    interleaved(runs, args.rounds)
    ratios = [against(runs[key], runs["plain"]) for key in ("auto", "fixed", "again")]
    layers = [f"{statistics.fmean(runs[key].passes):.2f}" for key in ("auto", "fixed")]
    hosts = [
        f"{bookkeeping(methods[key], runs[key], args.tokens * len(texts)):.2f}"
        for key in ("auto", "fixed", "plain")
    ]
    return [name, str(width), str(len(texts)), *ratios, ", ".join(layers), ", ".join(hosts)]


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
    parser.add_argument("--beams", type=int, nargs="+", default=[], metavar="W")
    parser.add_argument("--texts", nargs="+", help="usual, easy, hard: all by default")
    args = parser.parse_args()
    clock = time.process_time if args.cpu else time.perf_counter
    torch.set_num_threads(args.threads)
    pair = decoders.load_pair(args.pair) if args.pair else decoders.load_pair()
    print(
        f"{args.tokens} tokens, {args.rounds} rounds, {args.threads} threads; load average "
        f"{os.getloadavg()[0]:.1f}\n\n| text | batch | auto over plain | fixed {args.fixed} over "
        "plain | plain over plain | auto's mean length |\n|---|--:|--:|--:|--:|--:|"
        if not args.beams
        else "| text | beams | batch | auto over beam search | fixed "
        f"{args.fixed} over it | it over itself | layers a pass: auto, fixed | ms a layer on the "
        "host: auto, fixed, it |\n|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    with light_heap():
        for width, size in itertools.product(args.beams, args.sizes):
            for name, texts in searched(size).items():
                if not args.texts or name.split(",")[0] in args.texts:
                    cells = beams(pair, name, texts, width, clock, args)
                    print("|", " | ".join(cells), "|", flush=True)
        for size in args.sizes if not args.beams else ():
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
