"""`python -m tests.speed`: every measurement of NOTES.md, one after the other; each also runs alone, as `python -m tests.speed.engine`, the
plan as `python -m workbench experiment family`."""

import subprocess
import sys

for command in (
    ["tests.speed.engine"],
    ["tests.speed.lookup"],
    ["workbench", "experiment", "family"],
    ["tests.speed.batch"],
    ["tests.speed.advisor"],
):
    print(f"\n## python -m {' '.join(command)}\n", flush=True)
    subprocess.run([sys.executable, "-m", *command], check=True)
