"""Speculative decoding over plain sampling where top-p alone cuts flat distributions.

    python -m tests.speed.nucleus [--threads 1] [--tokens 48] [--lengths shipped auto] [--tiny]

Before that, a flat row over a peaked one, warped and drawn from by a chain of the kernels, and
warped from Python, as for a rule; aim: at most 2.

Forty prompts of twelve kinds (`kinds.json`), the embedded pair, temperatures from 0.5 to 1.5 and
top-p from 0.8 to 0.99 in turn. Aim: the median of each kind at least 0.9, no prompt below 0.8. Runs
of one prompt are interleaved; its ratio is that of the least times of three. Prints Markdown.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

import decoders
from decoders.distribution import Warping
from decoders.engine.kernels.loading import scan_for
from decoders.engine.kernels.select import draw, weigh
from decoders.reading import Readings, held

SIZES = 4_096, 49_152, 151_936
SAMPLINGS = [(0.5, 0.9), (0.7, 0.9), (1.0, 0.8), (1.0, 0.95), (1.5, 0.99)]
SETTINGS = Path(__file__).parents[2] / "assets" / "stories" / "settings.json"


def rows(warping: Warping, sizes: Sequence[int]) -> None:
    """Print what a flat row takes over a peaked one, in microseconds of the thread."""
    print(f"\nTemperature {warping.temperature}, top-p {warping.top_p}:\n")
    print("| tokens | kernels: peaked, flat | times | from Python: peaked, flat | times |")
    print("|--:|--:|--:|--:|--:|")
    numbers = np.array([warping.temperature, warping.top_k, warping.top_p, warping.min_p])
    for size in sizes:
        flat = np.random.default_rng(0).standard_normal((1, size)).astype(np.float32)
        peaked, masses = flat.copy(), np.empty(size)
        peaked[0, :: size // 8] += 20

        def chain(row: np.ndarray, masses: np.ndarray = masses) -> None:
            weigh(row[0], numbers, masses)
            draw(masses, 0.5)

        def rule(row: np.ndarray) -> None:
            read = Readings(row, held(warping), (warping.temperature,), scan=scan_for(row))
            read[0].warp(warping)

        times = [least(run, row) for run in (chain, rule) for row in (peaked, flat)]
        print(
            f"| {size:,} | {times[0]:.0f}, {times[1]:.0f} | {times[1] / times[0]:.1f} | "
            f"{times[2]:.0f}, {times[3]:.0f} | {times[3] / times[2]:.1f} |"
        )


def least(run: Callable[[np.ndarray], None], row: np.ndarray) -> float:
    """The least of 60 times, in microseconds that the thread ran."""
    times = []
    for _ in range(60):
        began = time.thread_time()
        run(row)
        times.append(1e6 * (time.thread_time() - began))
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--lengths", nargs="+", default=["shipped", "auto"])
    parser.add_argument("--tiny", action="store_true", help="two prompts")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for warping in (Warping(0.7, top_p=0.9), Warping(1.0, top_p=0.95)):
        rows(warping, SIZES[:1] if args.tiny else SIZES)
    pair = decoders.load_pair(device="cpu")
    shipped = json.loads(SETTINGS.read_text())["speculative"]["draft_length"]
    lengths = {name: shipped if name == "shipped" else name for name in args.lengths}
    methods = {"sampling": decoders.catalog["multinomial"]()} | {
        name: decoders.catalog["speculative"](draft_length=length)
        for name, length in lengths.items()
    }
    print(f"\nShipped: {shipped}\n\n| kind | draft length | median | least | most |")
    print("|---|---|--:|--:|--:|")
    samplings = cycle(SAMPLINGS)
    kinds = json.loads(Path(__file__).with_name("kinds.json").read_text())
    if args.tiny:
        kinds = {kind: prompts[:1] for kind, prompts in list(kinds.items())[:2]}
    for kind, prompts in kinds.items():
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
