"""Mistakes, planted one after another in a copy of the tree: the tests of each must fail.

    python -m tests.mutants            all, in a quarter of an hour
    python -m tests.mutants dsbd warp  those whose names begin so

`mutants.toml` has them.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 60  # of processor time for the tests of one mutant: other work may run beside them
PRODUCT = ("decoders", "workbench")


class Mutant(NamedTuple):
    """A mistake.

    Attributes:
        name: what is wrong
        right: a text that stands once in the product
        wrong: what replaces it
        tests: files, folders and single tests in `tests`, with spaces between them
    """

    name: str
    right: str
    wrong: str
    tests: str


def mutants() -> list[Mutant]:
    table = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))
    return [Mutant(**each) for each in table["mutant"]]


def sources(root: Path) -> Iterator[Path]:
    for room in PRODUCT:
        for kind in ("*.py", "*.js"):
            yield from sorted((root / room).rglob(kind))


def place(mutant: Mutant, root: Path) -> Path:
    """The file in which the right text stands, once."""
    texts = {path: path.read_text("utf-8").count(mutant.right) for path in sources(root)}
    places = [path for path, times in texts.items() if times]
    if sum(texts.values()) != 1:
        raise LookupError(f"{mutant.name}: {mutant.right!r} stands in {places}, not once.")
    return places[0]


def bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))


def compile_kernels(copy: Path) -> None:
    """Compile the copy's kernels, which takes a minute on some machines and is no test's time."""
    code = "from decoders.engine.kernels.loading import kernels; kernels()"
    subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True)


def verdict(mutant: Mutant, copy: Path) -> str:
    """What the tests say of a mutant: "found", or why it is not."""
    file = place(mutant, copy)
    right = file.read_text("utf-8")
    paths = [copy / "tests" / name for name in mutant.tests.split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["--hypothesis-profile", "first"]
    file.write_text(right.replace(mutant.right, mutant.wrong), "utf-8")
    if "kernels" in file.parts:
        compile_kernels(copy)
    try:
        run = subprocess.run(
            [*command, *map(str, paths)], cwd=copy, timeout=15 * SECONDS, preexec_fn=bounded,
            capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"NOT FOUND within {15 * SECONDS} s"
    finally:
        file.write_text(right, "utf-8")
    if run.returncode == 0:
        return "NOT FOUND"
    if run.returncode == -signal.SIGXCPU:
        return f"NOT FOUND within {SECONDS} s"
    if run.returncode != 1:  # e.g. the tests could not be collected, or there are none
        return f"NOT TESTED: {run.stdout[-300:]}{run.stderr[-300:]}"
    failures = [line for line in run.stdout.splitlines() if line.startswith("FAILED")]
    return (
        f"found by {failures[0].split()[1].split('::', 1)[-1]}" if failures else run.stdout[-300:]
    )


def main(names: list[str]) -> int:
    chosen = [m for m in mutants() if not names or m.name.startswith(tuple(names))]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in listed.split("\0"):
            if name and (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        compile_kernels(copy)
        for mutant in chosen:
            began = time.monotonic()
            says = verdict(mutant, copy)
            missed += not says.startswith("found")
            print(f"{time.monotonic() - began:4.0f} s  {mutant.name}: {says}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
