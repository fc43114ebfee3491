"""What drafts gain whose length is "auto".

    python -m tests.speed.drafts [--only auto beams] [--pair NAME] [--rounds 5] [--tokens 64]

*auto*: `draft_length="auto"` and a fixed length beside plain decoding, in batches (`--sizes 1 4 16
--fixed 4`); *beams*: speculative beam search beside beam search (`--beams 2 4 8`), where a place of
a draft is a layer. Easy text repeats itself, hard text is openings whose words are shuffled
(`--texts usual easy hard`). Plain stands beside itself too, which says how far two runs of one
program are apart. Seconds are those after the first round of each request. `--cpu 1` takes
processor seconds, on a busy machine.

Prints Markdown: the median of the rounds' ratios.
"""

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import decoders
from decoders.process import light_heap
from tests.speed.measure import measure, options, prompts, spread, table


def kinds(size: int, args: argparse.Namespace) -> dict[str, list[str]]:
    """So many prompts of each kind of text."""

    def shuffled(text: str, seed: int) -> str:
        words = text.split()
        random.Random(seed).shuffle(words)
        return " ".join(words)

    texts = prompts()
    refrains, openings = texts["refrains"], texts["openings"][:size]
    every = {
        "usual": openings,
        "easy": [refrains[i % len(refrains)] for i in range(size)],
        "hard": [shuffled(text, i) for i, text in enumerate(openings)],
    }
    return {name: every[name] for name in args.texts}


class Run:
    """Decodes a batch; keeps the seconds a token after all first rounds, and the draft lengths."""

    def __init__(
        self, pair: decoders.ModelPair, method: decoders.Method, texts: Sequence[str],
        clock: Callable[[], float], **options: Any,
    ):  # fmt: skip
        self.stream = lambda: decoders.stream(
            pair, list(texts), method, seed=0, ignore_eos=True, clock=clock, **options
        )
        self.clock, self.size, self.method = clock, len(texts), method
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

    def host(self, layers: int) -> float:
        """Milliseconds a layer that the decoder itself takes, without passes and their setting."""
        kind, spent = type(self.method), 0.0
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
            self()
        return 1e3 * spent / layers


def against(
    pair: decoders.ModelPair, methods: dict[str, decoders.Method], texts: Sequence[str],
    args: argparse.Namespace, **more: Any,
) -> tuple[dict[str, Run], list[str]]:  # fmt: skip
    """Runs of each method and of the plain one again, and ratios over the plain one."""
    clock = time.process_time if args.cpu else time.perf_counter
    methods = {**methods, "again": methods["plain"]}
    runs = {
        key: Run(pair, method, texts, clock, max_new_tokens=args.tokens, **more)
        for key, method in methods.items()
    }
    measure(runs, args.rounds)
    plain = runs["plain"].seconds[1:]
    ratios = {
        key: [b / a for a, b in zip(run.seconds[1:], plain, strict=True)]
        for key, run in runs.items()
    }
    return runs, [spread(ratios[key], 3) for key in ("auto", "fixed", "again")]


def auto(pair: decoders.ModelPair, args: argparse.Namespace) -> None:
    ours = decoders.catalog["speculative"]

    def rows() -> Iterator[tuple[object, ...]]:
        for size, heat in itertools.product(args.sizes, (0.0, 1.0)):
            plain = decoders.catalog["multinomial" if heat else "greedy"]()
            methods = {
                "plain": plain,
                "auto": ours(draft_length="auto"),
                "fixed": ours(draft_length=args.fixed),
            }
            for name, texts in kinds(size, args).items():
                if heat and name == "easy":
                    continue
                runs, ratios = against(pair, methods, texts, args, temperature=heat)
                length = f"{statistics.fmean(runs['auto'].lengths):.1f}"
                yield f"{name}, T={heat:g}", size, *ratios, length

    with light_heap():
        table(
            ("text", "batch", "auto over plain", f"fixed {args.fixed} over plain",
             "plain over plain", "auto's mean length"),
            rows(),
        )  # fmt: skip


def beams(pair: decoders.ModelPair, args: argparse.Namespace) -> None:
    ours, plain = (decoders.catalog[n] for n in ("speculative_beam_search", "beam_search"))

    def rows() -> Iterator[tuple[object, ...]]:
        for width, size in itertools.product(args.beams, args.sizes):
            methods = {
                "plain": plain(beams=width),
                "auto": ours(beams=width),
                "fixed": ours(beams=width, draft_length=args.fixed),
            }
            for name, texts in kinds(size, args).items():
                runs, ratios = against(pair, methods, texts, args)
                layers = (f"{statistics.fmean(runs[k].passes):.2f}" for k in ("auto", "fixed"))
                count = args.tokens * len(texts)
                hosts = (f"{runs[k].host(count):.2f}" for k in ("auto", "fixed", "plain"))
                yield name, width, size, *ratios, ", ".join(layers), ", ".join(hosts)

    with light_heap():
        table(
            ("text", "beams", "batch", "auto over beam search", f"fixed {args.fixed} over it",
             "it over itself", "layers a pass: auto, fixed",
             "ms a layer on the host: auto, fixed, it"),
            rows(),
        )  # fmt: skip


SECTIONS = {section.__name__: section for section in (auto, beams)}

if __name__ == "__main__":
    args = options(
        __doc__, {"rounds": 1, "tokens": 6, "sizes": [1], "beams": [2], "texts": ["hard"]},
        SECTIONS, pair=None, rounds=5, tokens=64, sizes=[1, 4, 16], fixed=4, beams=[2, 4, 8],
        texts=["usual", "easy", "hard"], cpu=0,
    )  # fmt: skip
    pair = decoders.load_pair(args.pair)
    for name in args.only:
        SECTIONS[name](pair, args)
