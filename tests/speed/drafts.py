"""What rules and draft sources cost beside the models, and which copies fastest.

    python -m tests.speed.drafts [--pair FOLDER] [--tokens 64] [--prompts 4] [--rounds 5]
                                 [--only bookkeeping copying] [--texts openings]

One thread; runs are interleaved. *Bookkeeping* is the processor time outside of the models' passes:
drafting, reading, rules, trees, traces. It is set beside that of chains of the draft model judged
token by token (aim: at most 1.5 times as much), at temperature 1 with top-k 20 and top-p 0.9: for
each draft token that the rule tested, and for each one drafted. Most of a round does not depend on
its draft. So where fewer tokens are tested a round than by chains of one token, the rounds are set
beside each other, and plain sampling says what a round without a draft costs. *Copying* compares
the tokens per processor second of suffix decoding and token recycling with look-up's (aim: 1.3) on
prompts that repeat themselves. Prints Markdown; bookkeeping is the least of the rounds, a ratio of
speeds their median with the least and the most.
"""

import argparse
import math
import os
import time
from collections.abc import Callable, Sequence
from unittest import mock

import torch

import decoders
from decoders.engine.passes import PackedPasses
from tests.speed.claims import WARPINGS
from tests.speed.engine import Seconds, times_as_fast
from tests.speed.lookup import prompts

BASE, SHORTEST, PLAIN = "tokenwise, model", "tokenwise, model, 1 token", "plain sampling"
COMBINATIONS = {
    BASE: {},
    SHORTEST: {"draft_length": 1},
    "tokenwise, model, gate 0.4": {"gate": 0.4},
    "match, model": {"rule": "match"},
    "block, model": {"rule": "block"},
    "fly, model": {"rule": "fly(window=2)"},
    "cascade, model": {"rule": "cascade"},
    "ensemble, model": {"rule": "ensemble"},
    "traversal, tree": {"rule": "traversal", "draft": "tree"},
    "traversal, distinct": {"rule": "traversal", "draft": "distinct"},
    "multipath, paths": {"rule": "multipath", "draft": "paths"},
    "match, best_first": {"rule": "match", "draft": "best_first"},
    "match, suffix": {"rule": "match", "draft": "suffix"},
    "match, suffix as a tree": {"rule": "match", "draft": "suffix(shape=tree)"},
    "match, recycling": {"rule": "match", "draft": "recycling"},
    "tokenwise, lookup": {"draft": "lookup"},
}
COPYING = ("lookup", "suffix", "recycling")
Results = Sequence[decoders.Result]


def apart(run: Callable[[], Results]) -> tuple[float, float, Results]:
    """Processor seconds outside of the models' passes and within them, and what the run found."""
    inside = 0.0

    def timed(passes):
        def measured(*args, **options):
            nonlocal inside
            began = time.process_time()
            try:
                return passes(*args, **options)
            finally:
                inside += time.process_time() - began

        return measured

    with (
        mock.patch.object(PackedPasses, "run", timed(PackedPasses.run)),
        mock.patch.object(PackedPasses, "read", timed(PackedPasses.read)),
    ):
        began = time.process_time()
        found = run()
        whole = time.process_time() - began
    return whole - inside, inside, found


def in_turn(runs: dict[str, Callable[[], Results]], rounds: int) -> dict[str, list]:
    """What `apart` says of each run in each round, after one to warm up."""
    took: dict[str, list] = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name in list(runs)[:: -1 if i % 2 else 1]:
            measured = apart(runs[name])
            if i:
                took[name].append(measured)
    return took


def runs_of(
    pair: decoders.ModelPair,
    methods: dict[str, decoders.Method],
    texts: Sequence[str],
    options: dict,
) -> dict[str, Callable[[], Results]]:
    def run(method: decoders.Method) -> Callable[[], Results]:
        return lambda: [
            decoders.generate(pair, text, method, ignore_eos=True, **options) for text in texts
        ]

    return {name: run(method) for name, method in methods.items()}


def bookkeeping(pair: decoders.ModelPair, texts: Sequence[str], tokens: int, rounds: int) -> None:
    methods = {name: decoders.catalog["speculative"](**s) for name, s in COMBINATIONS.items()}
    methods[PLAIN] = decoders.catalog["greedy"]()
    options = {**list(WARPINGS.values())[1], "max_new_tokens": tokens}
    costs = {}
    runs = runs_of(pair, methods, texts, options)
    for name, measured in in_turn(runs, rounds).items():
        entries = [entry for result in measured[0][2] for entry in result.rounds]
        us = 1e6 * min(outside for outside, _, _ in measured)
        tested, drafted = (sum(getattr(e, kind) for e in entries) for kind in ("tested", "drafted"))
        each = (us / count if count else math.nan for count in (tested, drafted, len(entries)))
        costs[name] = *each, tested / len(entries)
    print(
        "| rule, draft | us a tested token | times | us a drafted token | times | "
        "tested a round | us a round | times that of one token |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    for name, (a_tested, a_drafted, a_round, tested) in costs.items():
        print(
            f"| {name} | {a_tested:.0f} | {a_tested / costs[BASE][0]:.2f} | "
            f"{a_drafted:.0f} | {a_drafted / costs[BASE][1]:.2f} | {tested:.2f} | {a_round:.0f} | "
            f"{a_round / costs[SHORTEST][2]:.2f} |"
        )


def copying(pair: decoders.ModelPair, texts: Sequence[str], tokens: int, rounds: int) -> None:
    methods = {name: decoders.catalog[name]() for name in COPYING}
    print("\n| copying | over look-up | tokens a pass |\n|---|--:|--:|")
    for title, warping in WARPINGS.items():
        options = {**warping, "max_new_tokens": tokens}
        measured = in_turn(runs_of(pair, methods, texts, options), rounds)
        took: Seconds = {name: [a + b for a, b, _ in each] for name, each in measured.items()}
        for name in COPYING:
            found = measured[name][0][2]
            passes = sum(r.metrics.target_calls for r in found)
            rate = sum(len(r.tokens) for r in found) / passes
            print(
                f"| {name}, {title} | {times_as_fast(took, name, 'lookup')} | {rate:.2f} |",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    tables = {"bookkeeping": bookkeeping, "copying": copying}
    parser.add_argument("--only", nargs="+", choices=tables, default=list(tables))
    texts = prompts()
    parser.add_argument("--texts", choices=texts, default="openings", help="of bookkeeping")
    args = parser.parse_args()
    torch.set_num_threads(1)
    pair = decoders.load_pair(args.pair) if args.pair else decoders.load_pair()
    print(
        f"{args.tokens} tokens, {args.prompts} prompts, {args.rounds} rounds; load average "
        f"{os.getloadavg()[0]:.1f}\n"
    )
    for name in args.only:
        kind = args.texts if name == "bookkeeping" else "refrains"
        tables[name](pair, texts[kind][: args.prompts], args.tokens, args.rounds)


if __name__ == "__main__":
    main()
