"""What rules and drafts cost beside the models, what copies fastest, and what "auto" gains.

    python -m tests.speed.drafts [--only bookkeeping copying auto beams] [--pair NAME]
                                 [--rounds 5] [--tokens 64] [--prompts 4]

*bookkeeping*: processor time outside of the models' passes (drafting, reading, rules, trees,
traces) at temperature 1 with top-k 20 and top-p 0.9, beside that of chains of the draft model
judged token by token (aim: at most 1.5 times as much), for each token that the rule tested and for
each one drafted. Most of a round does not depend on its draft, so rounds are also set beside those
of chains of one token. *copying*: tokens per processor second of suffix decoding and token
recycling over look-up's (aim: 1.3) on prompts that repeat themselves.

*auto*: `draft_length="auto"` and a fixed length beside plain decoding, in batches (`--sizes 1 4 16
--fixed 4`); *beams*: speculative beam search beside beam search (`--beams 2 4 8`), where a place of
a draft is a layer. Easy text repeats itself, hard text is openings whose words are shuffled
(`--texts usual easy hard`). Plain stands beside itself too, which says how far two runs of one
program are apart. Seconds are those after the first round of each request. `--cpu 1` takes
processor seconds, on a busy machine.

Prints Markdown: for bookkeeping the least of the rounds, else the median of their ratios.
"""

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import decoders
from decoders.engine.passes import PackedPasses
from decoders.process import light_heap
from tests.speed.measure import WARPINGS, Over, measure, options, prompts, ratio, spread, table

BASE, SHORTEST, PLAIN = "tokenwise, model", "tokenwise, model, 1 token", "plain sampling"
COMBINATIONS: dict[str, dict[str, Any]] = {
    BASE: {},
    SHORTEST: {"draft_length": 1},
    "tokenwise, model, gate 0.4": {"gate": 0.4},
    "match, model": {"rule": "match"},
    "block, model": {"rule": "block"},
    "fly, model": {"rule": "fly(window=2)"},
    "cascade, model": {"rule": "cascade"},
    "traversal, tree": {"rule": "traversal", "draft": "tree"},
    "multipath, paths": {"rule": "multipath", "draft": "paths"},
    "match, best_first": {"rule": "match", "draft": "best_first"},
    "match, suffix": {"rule": "match", "draft": "suffix"},
    "match, recycling": {"rule": "match", "draft": "recycling"},
    "tokenwise, lookup": {"draft": "lookup"},
}
COPYING = ("lookup", "suffix", "recycling")


def bookkeeping(pair: decoders.ModelPair, args: argparse.Namespace) -> None:
    methods = {name: decoders.catalog["speculative"](**s) for name, s in COMBINATIONS.items()}
    methods[PLAIN] = decoders.catalog["multinomial"]()
    given = {**WARPINGS["T=1, top-k 20, top-p 0.9"], "max_new_tokens": args.tokens}
    texts = prompts()["openings"][: args.prompts]
    inside = 0.0

    def timed(passes: Callable[..., Any]) -> Callable[..., Any]:
        def within(*args: Any, **more: Any) -> Any:
            nonlocal inside
            began = time.process_time()
            try:
                return passes(*args, **more)
            finally:
                inside += time.process_time() - began

        return within

    cases = {name: Over(pair, method, texts, given) for name, method in methods.items()}
    with (
        mock.patch.object(PackedPasses, "run", timed(PackedPasses.run)),
        mock.patch.object(PackedPasses, "read", timed(PackedPasses.read)),
    ):
        took = measure(cases, args.rounds, lambda: time.process_time() - inside)
    costs = {}
    for name, run in cases.items():
        entries = [entry for result in run.results for entry in result.rounds]
        us = 1e6 * min(took[name])
        tested, drafted = (sum(getattr(e, kind) for e in entries) for kind in ("tested", "drafted"))
        each = (us / count if count else math.nan for count in (tested, drafted, len(entries)))
        costs[name] = *each, tested / len(entries)
    table(
        ("rule, draft", "us a tested token", "times", "us a drafted token", "times",
         "tested a round", "us a round", "times that of one token"),
        (
            (
                name, f"{a_tested:.0f}", f"{a_tested / costs[BASE][0]:.2f}", f"{a_drafted:.0f}",
                f"{a_drafted / costs[BASE][1]:.2f}", f"{tested:.2f}", f"{a_round:.0f}",
                f"{a_round / costs[SHORTEST][2]:.2f}",
            )
            for name, (a_tested, a_drafted, a_round, tested) in costs.items()
        ),
    )  # fmt: skip


def copying(pair: decoders.ModelPair, args: argparse.Namespace) -> None:
    texts = prompts()["refrains"][: args.prompts]

    def rows() -> Iterator[tuple[str, ...]]:
        for title, warping in WARPINGS.items():
            given = {**warping, "max_new_tokens": args.tokens}
            cases = {name: Over(pair, decoders.catalog[name](), texts, given) for name in COPYING}
            took = measure(cases, args.rounds, time.process_time)
            for name, run in cases.items():
                yield f"{name}, {title}", ratio(took, name, "lookup"), f"{run.rate:.2f}"

    table(("copying", "over look-up", "tokens a pass"), rows())


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
    pair: decoders.ModelPair,
    methods: dict[str, decoders.Method],
    texts: Sequence[str],
    args: argparse.Namespace,
    **more: Any,
) -> tuple[dict[str, Run], list[str]]:
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


SECTIONS = {section.__name__: section for section in (bookkeeping, copying, auto, beams)}

if __name__ == "__main__":
    args = options(
        __doc__,
        {"rounds": 1, "tokens": 6, "prompts": 1, "sizes": [1], "beams": [2], "texts": ["hard"]},
        SECTIONS,
        pair=None,
        rounds=5,
        tokens=64,
        prompts=4,
        sizes=[1, 4, 16],
        fixed=4,
        beams=[2, 4, 8],
        texts=["usual", "easy", "hard"],
        cpu=0,
    )
    pair = decoders.load_pair(args.pair)
    for name in args.only:
        SECTIONS[name](pair, args)
