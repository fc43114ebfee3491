"""Runs every decoder of the catalog with the shipped pair over the held-out prompts and writes the table into the card.

PYTHONPATH=. python assets/stories/decoder_table.py
"""

import argparse
import json
import math
import time
from pathlib import Path

from card import fill, table
from tqdm import tqdm

import decoders

HERE = Path(__file__).parent
PAPER = {"temperature": 1.0, "top_k": 20, "top_p": 0.9}  # the settings of the papers' experiments
HEAD = [
    "decoder",
    "perplexity",
    "tokens/s",
    "block efficiency",
    "accepted / drafted",
    "accepted / tested",
    "the counts",
]


def measure(pair: decoders.ModelPair, name: str, prompts: list[str], new_tokens: int) -> list[object]:
    """One row: the prompts one at a time, sums over all of them; perplexity under the raw target, over all new tokens."""
    start = time.perf_counter()
    results = [
        decoders.generate(pair, prompt, decoders.catalog[name](), max_new_tokens=new_tokens, seed=seed, **PAPER)
        for seed, prompt in enumerate(tqdm(prompts, desc=name))
    ]
    seconds = time.perf_counter() - start
    metrics = [result.metrics for result in results]
    counts = ("new_tokens", "target_calls", "drafted", "tested", "accepted")
    new, calls, drafted, tested, accepted = (sum(getattr(m, key) or 0 for m in metrics) for key in counts)
    nats = sum(math.log(m.perplexity) * m.new_tokens for m in metrics)
    rates = [f"{accepted / total:.3f}" if total else "" for total in (drafted, tested)]
    shown = f"{accepted} / {tested} / {drafted}" if drafted else ""
    return [name, f"{math.exp(nats / new):.2f}", f"{new / seconds:.0f}", f"{new / calls:.2f}", *rates, shown]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", type=Path, default=HERE)
    parser.add_argument("--prompts", type=int, default=60, help="how many of prompts.json")
    parser.add_argument("--new-tokens", type=int, default=60)
    parser.add_argument("--card", type=Path, default=HERE / "README.md")
    args = parser.parse_args()
    pair = decoders.load_pair(str(args.pair / "target"), str(args.pair / "draft"))
    prompts = json.loads((HERE / "prompts.json").read_text())
    prompts = (prompts["instructions"] + prompts["openings"])[: args.prompts]
    rows = [measure(pair, name, prompts, args.new_tokens) for name in decoders.catalog]
    note = f"{len(prompts)} held-out prompts, one at a time, {args.new_tokens} new tokens, T=1, top-k 20, top-p 0.9, seeds 0 and up."
    args.card.write_text(fill(args.card.read_text(), "decoders", f"{note}\n\n{table(HEAD, rows)}\n"))


if __name__ == "__main__":
    main()
