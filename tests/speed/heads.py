"""The embedded target's head beside its draft model and look-up, over our greedy decoding.

    python -m tests.speed.heads [--threads 1] [--tokens 64] [--prompts 6] [--rounds 5]
                                [--lengths 2 3 4] [--nodes 4]

T=0, and T=1 with top-k 20 and top-p 0.9, all runs interleaved on the same held-out prompts. Prints
Markdown: speed over greedy decoding, tokens per pass of the target, acceptance by place of the
draft, and the parts of a round; a ratio is the median of the rounds' ratios with the least and the
most. Five minutes on one thread.
"""

import argparse
import os
import statistics
from collections.abc import Sequence

import torch

import decoders
from tests.speed.claims import WARPINGS, over, steady
from tests.speed.engine import interleaved, times_as_fast
from tests.speed.lookup import prompts


def by_place(results: Sequence[decoders.Result], places: int) -> str:
    """Of the drafts that a round tested at each place of a chain, the share that it kept."""
    shares = []
    for place in range(places):
        tested = [
            drafted[place].fate == decoders.Fate.ACCEPTED
            for result in results
            for entry in result.rounds
            if len(
                drafted := [
                    t
                    for t in entry.trials
                    if t.fate in (decoders.Fate.ACCEPTED, decoders.Fate.REJECTED)
                ]
            )
            > place
        ]
        shares.append(f"{statistics.mean(tested):.2f}" if tested else "–")
    return ", ".join(shares)


def parts(results: Sequence[decoders.Result]) -> tuple[float, float]:
    """Milliseconds of a draft pass, and of a round's pass of the target."""
    rounds = steady(results)
    calls = sum(r.draft_calls for r in rounds)
    drafting = sum(r.draft_seconds for r in rounds) / calls if calls else 0.0
    return 1e3 * drafting, 1e3 * sum(r.verify_seconds for r in rounds) / len(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--nodes", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    texts = prompts()["openings"][: args.prompts]
    pairs = {"draft model": decoders.load_pair(), "head": decoders.load_pair(draft="head")}
    print(f"load average {os.getloadavg()[0]:.1f} before")
    for title, warping in WARPINGS.items():
        options = {**warping, "max_new_tokens": args.tokens}
        base = "greedy" if not warping["temperature"] else "sampling"
        plain = decoders.catalog["greedy" if base == "greedy" else "multinomial"]()
        runs = {base: over(pairs["draft model"], plain, texts, options)}
        runs["look-up"] = over(
            pairs["draft model"], decoders.catalog["lookup"](copy=args.nodes), texts, options
        )
        for name, pair in pairs.items():
            for length in args.lengths:
                method = decoders.catalog["speculative"](draft_length=length)
                runs[f"{name}, {length} tokens"] = over(pair, method, texts, options)
            method = decoders.catalog["best_first"](nodes=args.nodes)
            runs[f"{name}, best-first tree of {args.nodes}"] = over(pair, method, texts, options)
        took = interleaved(runs, args.rounds)
        print(
            f"\n### {title}\n\n| | tokens/s | over {base} | tokens a pass | kept, by place | "
            "ms a draft pass | ms a target pass |\n|---|--:|--:|--:|---|--:|--:|"
        )
        for name, seconds in took.items():
            found = runs[name].found
            passes = sum(r.metrics.target_calls for r in found)
            written = sum(r.metrics.new_tokens for r in found)
            kept = by_place(found, args.nodes) if "tokens" in name else ""
            drafting, verifying = parts(found)
            print(
                f"| {name} | {args.prompts * args.tokens / statistics.median(seconds):.0f} | "
                f"{times_as_fast(took, name, base)} | {written / passes:.2f} | {kept} | "
                f"{drafting:.2f} | {verifying:.2f} |",
                flush=True,
            )
    print(f"\nload average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
