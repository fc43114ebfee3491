"""Top-p alone where distributions are flat, and what asking whether a kept pair changed takes.

    python -m tests.speed.nucleus [--only rows kinds check] [--tokens 48] [--rounds 3] [--threads 1]

*rows*: a flat row over a peaked one, drawn from by a chain of the kernels and warped from Python,
as for a rule, in microseconds of the thread; aim: at most 2. *kinds*: speculative decoding of the
lengths that the pair ships over plain sampling, on forty prompts of twelve kinds (`kinds.json`), at
temperatures from 0.5 to 1.5 and top-p from 0.8 to 0.99 in turn; aim: the median of each kind at
least 0.9, no prompt below 0.8. *check*: the share of a call of 64 tokens; aim: 1%. Prints Markdown.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import numpy as np

import decoders
from decoders.distribution import Warping
from decoders.engine.fingerprint import Fingerprint
from decoders.engine.kernels.loading import scan_for
from decoders.engine.kernels.select import draw, weigh
from decoders.reading import Readings, held
from tests.speed.measure import measure, options, prompts, spread, table
from workbench.models.presets import tuned

SIZES = 4_096, 49_152, 151_936
WARPINGS = Warping(0.7, top_p=0.9), Warping(1.0, top_p=0.95), Warping(1.5, top_p=0.99)
SAMPLINGS = [(0.5, 0.9), (0.7, 0.9), (1.0, 0.8), (1.0, 0.95), (1.5, 0.99)]


def rows(args: argparse.Namespace) -> None:
    def each(warping: Warping) -> Iterator[tuple[object, ...]]:
        numbers = np.array([warping.temperature, warping.top_k, warping.top_p, warping.min_p])
        for size in SIZES[: args.sizes]:
            flat = np.random.default_rng(0).standard_normal((1, size)).astype(np.float32)
            peaked, masses = flat.copy(), np.empty(size)
            peaked[0, :: size // 8] += 20

            def chain(row: np.ndarray, masses: np.ndarray = masses) -> None:
                weigh(row[0], numbers, masses)
                draw(masses, 0.5)

            def rule(row: np.ndarray) -> None:
                read = Readings(row, held(warping), (warping.temperature,), scan=scan_for(row))
                next(iter(read)).warp(warping)

            for name, run in (("kernels", chain), ("Python", rule)):
                cases: dict[str, Callable] = {
                    "peaked": lambda: run(peaked),  # noqa: B023
                    "flat": lambda: run(flat),  # noqa: B023
                }
                took = measure(cases, 20 * args.rounds, time.thread_time)
                us = [1e6 * min(seconds) for seconds in took.values()]
                yield f"{size:,}, {name}", *(f"{each:.0f}" for each in us), f"{us[1] / us[0]:.1f}"

    for warping in WARPINGS:
        print(f"\nTemperature {warping.temperature}, top-p {warping.top_p}:")
        table(("tokens", "peaked", "flat", "times"), each(warping))


def kinds(args: argparse.Namespace) -> None:
    pair, samplings = decoders.load_pair(device="cpu"), cycle(SAMPLINGS)
    texts = json.loads(Path(__file__).with_name("kinds.json").read_text())
    methods = {
        "plain": decoders.catalog["multinomial"](),
        "drafting": decoders.catalog["speculative"](**tuned()["speculative"]),
    }
    print(f"\n{methods['drafting']}")

    def over(prompt: str) -> float:
        temperature, top_p = next(samplings)
        given = {"temperature": temperature, "top_p": top_p, "max_new_tokens": args.tokens}
        cases: dict[str, Callable] = {
            name: lambda method=method: decoders.generate(
                pair, prompt, method, ignore_eos=True, **given
            )
            for name, method in methods.items()
        }
        took = measure(cases, args.rounds)
        return min(took["plain"]) / min(took["drafting"])

    each = ((kind, [over(text) for text in texts[kind][: args.prompts]]) for kind in texts)
    table(("kind", "median (least to most)"), ((kind, spread(ratios)) for kind, ratios in each))


def check(args: argparse.Namespace) -> None:
    pair, text = decoders.load_pair(device="cpu"), prompts()["openings"][0]
    spent, change = 0.0, Fingerprint.change

    def timed(self: Fingerprint) -> str:
        nonlocal spent
        began = time.perf_counter()
        answer = change(self)
        spent += time.perf_counter() - began
        return answer

    def shares(name: str, temperature: float) -> Iterator[float]:
        nonlocal spent
        for _ in range(4 * args.rounds):
            spent, began = 0.0, time.perf_counter()
            given = {"max_new_tokens": 64, "ignore_eos": True, "temperature": temperature}
            decoders.generate(pair, text, decoders.catalog[name](), **given)
            yield 100 * spent / (time.perf_counter() - began)

    Fingerprint.change = timed  # type: ignore[method-assign]  # to time it
    cases = [(name, t) for name in ("greedy", "speculative") for t in (0.0, 0.7)]
    table(
        ("a call of 64 tokens", "% of it"),
        ((f"{name}, T={t}", spread([*shares(name, t)][1:])) for name, t in cases),
    )


SECTIONS = {section.__name__: section for section in (rows, kinds, check)}

if __name__ == "__main__":
    args = options(
        __doc__, {"tokens": 8, "rounds": 1, "prompts": 1, "sizes": 1}, SECTIONS,
        tokens=48, rounds=3, prompts=4, sizes=len(SIZES),
    )  # fmt: skip
    for name in args.only:
        SECTIONS[name](args)
