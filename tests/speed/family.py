"""Every decoder of the catalog at the papers' settings over held-out prompts, beside what the papers found.

    python -m tests.speed.family [--pair FOLDER] [--tokens 64] [--prompts 50] [--only mtad dsbd ...]

Prompt by prompt all decoders take their turn, so that whatever else the machine does falls on all alike; "x greedy" is the median
over prompts of a decoder's tokens/s over greedy's on the same prompt. Perplexity is exp(-mean log p) over all new tokens, under
the raw target. Prints a Markdown table.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

import torch

import decoders

PROMPTS = Path(__file__).parents[2] / "assets" / "stories" / "prompts.json"
SHARED = {"temperature": 1.0, "top_k": 20, "top_p": 0.9}  # mtad.txt appendix F
SETTINGS = {"dsbd": {"draft_length": 2, "draft_beams": 4}, "bild": {"draft_length": 10}}  # else gamma 4, the default
# mtad.txt table 4 (ChatGPT-Prompt, Llama-2: tokens/s and perplexity), table 5 (Llama-2: tokens per iteration);
# dsbd.txt table 1 (Llama-2 on SQuAD: tokens/s and perplexity).
MTAD_PAPER = {
    "speculative": (36.8, 3.64, 2.02),
    "bild": (34.4, 3.15, 1.83),
    "spectr": (45.1, 3.64, 2.73),
    "specinfer": (29.7, 3.64, 2.74),
    "mtad": (63.0, 2.06, 3.17),
}
DSBD_PAPER = {
    "multinomial": (21.14, 1.82),
    "speculative": (27.11, 1.79),
    "specinfer": (27.15, 1.78),
    "dsbd": (26.67, 1.54),
}
HEAD = [
    "decoder", "perplexity", "tokens/s", "x greedy", "tokens / target call", "accepted / drafted", "accepted / tested", "counts",
    "mtad.txt: tokens/s, perplexity, tokens / call", "dsbd.txt: tokens/s, perplexity",
]  # fmt: skip


def rate(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else ""


def row(name: str, results: list[decoders.Metrics], greedy: list[decoders.Metrics]) -> list[str]:
    """One line of the table: sums over all prompts, and the median speed against greedy's on the same prompt."""
    keys = ("new_tokens", "target_calls", "drafted", "tested", "accepted")
    new, calls, drafted, tested, accepted = (sum(getattr(m, key) for m in results) for key in keys)
    nats = sum(math.log(m.perplexity) * m.new_tokens for m in results)
    speed = statistics.median(m.tokens_per_second / g.tokens_per_second for m, g in zip(results, greedy, strict=True))
    return [
        name, f"{math.exp(nats / new):.2f}", f"{new / sum(m.seconds for m in results):.0f}", f"{speed:.2f}", f"{new / calls:.2f}", rate(accepted, drafted), rate(accepted, tested),
        f"{accepted} / {tested} / {drafted}" if drafted else "",
        ", ".join(map(str, MTAD_PAPER.get(name, ()))), ", ".join(map(str, DSBD_PAPER.get(name, ()))),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", help="folder with target/ and draft/; default: the embedded pair")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--only", nargs="+", default=list(decoders.catalog), help="some decoders; greedy is always run")
    args = parser.parse_args()
    pair = decoders.load_pair(args.pair)
    texts = json.loads(PROMPTS.read_text())
    texts = (texts["openings"] + texts["instructions"])[: args.prompts]
    names = list(dict.fromkeys(["greedy", *args.only]))
    methods = {name: decoders.catalog[name](**SETTINGS.get(name, {})) for name in names}
    metrics: dict[str, list[decoders.Metrics]] = {name: [] for name in names}
    for method in methods.values():
        decoders.generate(pair, texts[0], method, max_new_tokens=8, **SHARED)  # warms up
    for seed, text in enumerate(texts):
        for name, method in methods.items():
            out = decoders.generate(pair, text, method, max_new_tokens=args.tokens, seed=seed, **SHARED)
            metrics[name].append(out.metrics)
    print(f"{len(texts)} held-out prompts, {args.tokens} new tokens at most, T=1, top-k 20, top-p 0.9, seeds 0 and up, "
          f"{torch.get_num_threads()} threads. Counts: accepted / tested / drafted.\n")  # fmt: skip
    for cells in (HEAD, ["---"] * len(HEAD), *(row(n, metrics[n], metrics["greedy"]) for n in names)):
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
