"""`python -m tests.speed`: the measurements of notes/ in turn, two hours on a quiet machine.

Each also runs alone, as `python -m tests.speed.engine`, the plan as `python -m workbench experiment
family`. Two need more than this checkout: `tests.speed.cuda` a GPU, without which it is left out,
and `tests.speed.beside` another checkout."""

import subprocess
import sys

import torch

SINGLE = (
    "engine",
    "outside",
    "nucleus",
    "passes",
    "claims",
    "lookup",
    "generate",
    "dsbd",
    "batch",
    "draw",
    "drafts",
    "heads",
    "auto",
    "verdicts",
    "advisor",
    "page",
)

for command in (
    *(
        [f"tests.speed.{name}"]
        for name in (*SINGLE, *(["cuda"] if torch.cuda.is_available() else []))
    ),
    ["workbench", "experiment", "family"],
):
    print(f"\n## python -m {' '.join(command)}\n", flush=True)
    subprocess.run([sys.executable, "-m", *command], check=True)
