"""`python -m tests.speed`: every measurement of NOTES.md, one after the other; each also runs alone, as `python -m tests.speed.engine`."""

import subprocess
import sys

for name in ("engine", "lookup", "family", "batch"):
    print(f"\n## python -m tests.speed.{name}\n", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.speed.{name}"], check=True)
