"""`python -m bench`: every measurement of NOTES.md, one after the other; each also runs alone, as `python -m bench.engine`."""

import subprocess
import sys

for name in ("engine", "lookup", "family", "batch"):
    print(f"\n## python -m bench.{name}\n", flush=True)
    subprocess.run([sys.executable, "-m", f"bench.{name}"], check=True)
