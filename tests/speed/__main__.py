"""`python -m tests.speed`: the measurements of notes/ in turn, an hour on a quiet machine.

Each also runs alone, as `python -m tests.speed.engine`, and in its least form by `--tiny`; that of
a GPU only where there is one."""

import subprocess
import sys

import torch

GPU = ["gpu"] if torch.cuda.is_available() else []

for name in ("engine", "nucleus", "claims", "drafts", "smollm2", "page", *GPU):
    print(f"\n## python -m tests.speed.{name}\n", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.speed.{name}", *sys.argv[1:]], check=True)
