"""`python -m decoders.selftest`: whether everything runs right on this machine, and how fast.

Each section runs in its own process, because an illegal address on a GPU spoils the process in
which it happens. Sections that need a GPU say so and are left out without one. Exit code 0 means
that all is well. `python -m decoders.selftest NAME` runs one section in this process.
"""

import subprocess
import sys

from decoders.selftest.common import Wrong, llama, machine, ways
from decoders.selftest.models import SIZES, draws, passes, speed, whole

__all__ = ["SECTIONS", "SIZES", "llama", "main", "run", "run_all"]

LIMIT = 600  # seconds that one section may take

SECTIONS = {section.__name__: section for section in (machine, ways, draws, passes, whole, speed)}


def run(section: str) -> bool:
    """Print the lines of one section; returns whether all is well."""
    try:
        for line in SECTIONS[section]():
            print(f"  {line}", flush=True)
    except Wrong as error:
        print(f"  WRONG: {error}.", flush=True)
        return False
    return True


def run_all() -> bool:
    failed = []
    for name, section in SECTIONS.items():
        print(f"{name}: {' '.join(str(section.__doc__).split())}", flush=True)
        command = [sys.executable, "-m", "decoders.selftest", name]
        try:
            code: int | str = subprocess.run(command, timeout=LIMIT).returncode
        except subprocess.TimeoutExpired:
            code = f"no end after {LIMIT} s"
        if code != 0:
            failed.append(name)
        # A section that found a fault has said so.
        if code not in (0, 1):
            print(f"  FAILED ({code})", flush=True)
    print("All is well." if not failed else f"Something is wrong: {', '.join(failed)}.")
    return not failed


def main(arguments: list[str]) -> int:
    if not arguments:
        return 0 if run_all() else 1
    if arguments[0] not in SECTIONS or len(arguments) > 1:
        print(f"The sections are {', '.join(SECTIONS)}.", file=sys.stderr)
        return 2
    return 0 if run(arguments[0]) else 1
