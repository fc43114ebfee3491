"""Calls of the public API with odd types and values; a failure prints the call to paste.

python -m tests.fuzz [--calls 10000] [--seed 0]
"""

import argparse
import time

import torch

from tests.fuzz import fuzz

parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
parser.add_argument("--calls", type=int, default=10_000)
parser.add_argument("--seed", type=int, default=0)
asked = parser.parse_args()
torch.set_num_threads(1)
start = time.monotonic()
seen = fuzz(asked.calls, asked.seed)
counts = ", ".join(f"{count} x {name or 'a result'}" for name, count in seen.most_common())
print(f"{seen.total()} calls in {time.monotonic() - start:.0f} seconds: {counts}")
