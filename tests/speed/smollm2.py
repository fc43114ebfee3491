"""SmolLM2's head on its held-out questions: speed over plain decoding by kind, acceptance by place.

    python -m tests.speed.smollm2 [--each 10] [--threads 1] [--tokens 64] [--head FOLDER]

Greedy decoding and speculative decoding of 2, 3 and 4 tokens, sampling at temperature 0.7 and top-p
0.9 likewise, MTAD beside sampling at temperature 1, and on the copying tasks look-up and suffix
decoding, all interleaved in one process, ends ignored. Prints Markdown: a ratio is that of the
seconds of a kind's questions. Twenty minutes on one thread; --each 2 takes four.
"""

import argparse
import json
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path

import torch

import decoders
from tests.speed.heads import by_place

QUESTIONS = Path(__file__).parents[2] / "training" / "smollm2" / "questions.jsonl"
COPYING = "summary", "edit"
GREEDY, USED, WHOLE = (
    {"temperature": 0.0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1.0},
)
LENGTHS = 2, 3, 4


def cases() -> dict[str, tuple[decoders.Method, dict, str]]:
    """By name the decoder, its sampling, and the name of the one that it is measured against."""
    new = decoders.catalog
    found = {"greedy": (new["greedy"](), GREEDY, "greedy")}
    found |= {
        f"speculative, {n}": (new["speculative"](draft_length=n), GREEDY, "greedy") for n in LENGTHS
    }
    found["look-up"] = new["lookup"](), GREEDY, "greedy"
    found["suffix"] = new["suffix"](), GREEDY, "greedy"
    found["sampling 0.7"] = new["multinomial"](), USED, "sampling 0.7"
    found |= {
        f"speculative 0.7, {n}": (new["speculative"](draft_length=n), USED, "sampling 0.7")
        for n in LENGTHS
    }
    found["sampling 1"] = new["multinomial"](), WHOLE, "sampling 1"
    found["mtad"] = new["mtad"](), WHOLE, "sampling 1"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--each", type=int, default=10, help="questions of a kind")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--head")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pair = decoders.load_pair("smollm2", args.head)
    rows = [json.loads(line) for line in QUESTIONS.read_text().splitlines()]
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    chosen = [row for kind in kinds for row in [r for r in rows if r["kind"] == kind][: args.each]]
    seconds: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    results: dict[str, list[decoders.Result]] = defaultdict(list)
    print(f"load average {os.getloadavg()[0]:.1f} before, {len(chosen)} questions\n")
    for i, row in enumerate([chosen[0], *chosen]):  # the first to warm up
        prompt = [{"role": "user", "content": row["question"]}]
        mine = list(cases().items())
        for name, (method, sampling, _) in mine[:: -1 if i % 2 else 1]:
            copying = row["kind"] in COPYING
            if copying and sampling is not GREEDY:
                continue
            began = time.perf_counter()
            result = decoders.generate(
                pair,
                prompt,
                method,
                max_new_tokens=args.tokens,
                ignore_eos=True,
                seed=i,
                **sampling,
            )
            if i:
                seconds[name][row["kind"]] += time.perf_counter() - began
                results[name].append(result)
    head = " | ".join(kinds)
    print(f"| over plain decoding | {head} | median of eight | tokens a pass |")
    print(f"|---|{'--:|' * (len(kinds) + 2)}")
    for name, (_, _, base) in cases().items():
        ratios = {
            kind: seconds[base][kind] / seconds[name][kind]
            for kind in kinds
            if kind in seconds[name]
        }
        shown = " | ".join(f"{ratios[kind]:.2f}" if kind in ratios else "" for kind in kinds)
        middle = statistics.median(r for kind, r in ratios.items() if kind not in COPYING)
        written = sum(r.metrics.new_tokens for r in results[name])
        passes = sum(r.metrics.target_calls for r in results[name])
        print(f"| {name} | {shown} | {middle:.2f} | {written / passes:.2f} |")
    for name in ("speculative, 4", "speculative 0.7, 4"):
        print(f"\nkept by place, of those whose places before were kept, {name}: ", end="")
        print(by_place(results[name], 4))
    for name in ("sampling 1", "mtad"):
        perplexity = statistics.median(r.metrics.perplexity for r in results[name])
        print(f"\nmedian perplexity, {name}: {perplexity:.2f}")
    speed = args.tokens * len(results["greedy"]) / sum(seconds["greedy"].values())
    print(f"\ngreedy: {speed:.0f} tokens/s; load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
