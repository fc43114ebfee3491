"""Speculative decoding over plain sampling where top-p alone cuts flat distributions.

    python -m tests.speed.nucleus [--threads 1] [--tokens 48] [--lengths shipped auto]

Forty prompts of twelve kinds (`kinds.json`), the embedded pair, temperatures from 0.5 to 1.5 and
top-p from 0.8 to 0.99 in turn. Aim: the median of each kind at least 0.9, no prompt below 0.8. Runs
of one prompt are interleaved; its ratio is that of the least times of three. Prints Markdown.
"""

import argparse
import json
import statistics
import time
from itertools import cycle
from pathlib import Path

import torch

import decoders

SAMPLINGS = [(0.5, 0.9), (0.7, 0.9), (1.0, 0.8), (1.0, 0.95), (1.5, 0.99)]
SETTINGS = Path(__file__).parents[2] / "assets" / "stories" / "settings.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--lengths", nargs="+", default=["shipped", "auto"])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pair = decoders.load_pair(device="cpu")
    shipped = json.loads(SETTINGS.read_text())["speculative"]["draft_length"]
    lengths = {name: shipped if name == "shipped" else name for name in args.lengths}
    methods = {"sampling": decoders.catalog["multinomial"]()} | {
        name: decoders.catalog["speculative"](draft_length=length)
        for name, length in lengths.items()
    }
    print(f"Shipped: {shipped}\n\n| kind | draft length | median | least | most |")
    print("|---|---|--:|--:|--:|")
    samplings = cycle(SAMPLINGS)
    for kind, prompts in json.loads(Path(__file__).with_name("kinds.json").read_text()).items():
        ratios: dict[str, list[float]] = {name: [] for name in lengths}
        for prompt in prompts:
            temperature, top_p = next(samplings)
            took: dict[str, list[float]] = {name: [] for name in methods}
            for seed in (0, 0, 0, 0):  # the first compiles and warms up
                for name, method in methods.items():
                    began = time.perf_counter()
                    decoders.generate(
                        pair, prompt, method, max_new_tokens=args.tokens, ignore_eos=True,
                        seed=seed, temperature=temperature, top_p=top_p,
                    )  # fmt: skip
                    took[name].append(time.perf_counter() - began)
            for name in lengths:
                ratios[name].append(min(took["sampling"][1:]) / min(took[name][1:]))
        for name, found in ratios.items():
            print(
                f"| {kind} | {name} | {statistics.median(found):.2f} | {min(found):.2f} | "
                f"{max(found):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
