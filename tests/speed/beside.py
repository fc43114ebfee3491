"""Tokens/s at batch 8 of this checkout and another one, in turn, on the same weights and prompts.

    git worktree add ../old 17cbd07
    python -m tests.speed.beside ../old [--decoders spectr mtad] [--threads 1] [--tokens 32]
                                 [--rounds 9]

Each checkout has its own process, and one works while the other waits. The reading of prompts is
left out. Prints Markdown: medians over rounds, and of the rounds' ratios the median with the least
and the most. About three minutes on one thread.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECODERS = ["greedy", "speculative", "spectr", "specinfer", "mcss", "mtad", "dsbd"]
WORKER = """
import sys, time, json, torch, decoders
threads, tokens, pair, prompts = json.loads(sys.stdin.readline())
torch.set_num_threads(threads)
pair = decoders.load_pair(pair)
options = dict(temperature=1.0, top_k=20, top_p=0.9, ignore_eos=True, max_new_tokens=tokens)
print("ready", flush=True)
for line in sys.stdin:
    name, seed = json.loads(line)
    began, counted, first = None, 0, set()
    for event in decoders.stream(pair, prompts, decoders.catalog[name](), seed=seed, **options):
        if began is None:
            began = time.perf_counter()
        if event.result is not None:
            counted += len(event.result.tokens)
        elif event.request not in first:
            first.add(event.request)
            counted -= len(event.append)
    print(counted / (time.perf_counter() - began), flush=True)
"""


class Checkout:
    """A process that decodes with the code of one checkout."""

    def __init__(self, folder: Path, threads: int, tokens: int, prompts: list[str]):
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._told(threads, tokens, str(ROOT / "assets" / "stories"), prompts)

    def speed(self, decoder: str, seed: int) -> float:
        """Tokens/s of one batch."""
        return float(self._told(decoder, seed))

    def _told(self, *words: object) -> str:
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        return answer or sys.exit("A checkout failed; its error stands above.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="a folder with the other checkout")
    parser.add_argument("--decoders", nargs="+", default=DECODERS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    texts = json.loads((ROOT / "assets" / "stories" / "prompts.json").read_text())["openings"][
        : args.batch
    ]
    began, load = time.monotonic(), os.getloadavg()[0]
    checkouts = [
        Checkout(folder.resolve(), args.threads, args.tokens, texts)
        for folder in (ROOT, args.other)
    ]
    print(
        f"batch {args.batch}, {args.tokens} tokens, {args.rounds} rounds, {args.threads} threads, "
        f"T=1, top-k 20, top-p 0.9; load average {load:.1f} before"
    )
    print(
        "\n| decoder | here, tokens/s | there, tokens/s | times as fast: median (least to most) "
        "|\n|---|--:|--:|--:|"
    )
    for name in args.decoders:
        speeds: list[list[float]] = [[], []]
        for i in range(-1, args.rounds):  # one round to warm up
            for which in (0, 1) if i % 2 else (1, 0):
                found = checkouts[which].speed(name, 8 * max(i, 0))
                speeds[which] += [found] * (i >= 0)
        ratios = [a / b for a, b in zip(*speeds, strict=True)]
        here, there = map(statistics.median, speeds)
        print(
            (
                f"| {name} | {here:.0f} | {there:.0f} | {statistics.median(ratios):.2f} "
                f"({min(ratios):.2f} to {max(ratios):.2f}) |"
            ),
            flush=True,
        )
    print(f"\n{time.monotonic() - began:.0f} s; load average {os.getloadavg()[0]:.1f} after")
    for checkout in checkouts:
        checkout.process.stdin.close()
        checkout.process.wait()


if __name__ == "__main__":
    main()
