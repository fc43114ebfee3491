"""The program in the terminal: seven calls and what they print.

What a clock measured is masked: in a table that has a column or a line of speeds, their cells; the
remarks right beneath it, which are on the clock; ids and dates of new runs. Of a sentence only its
decimals stay: wording may change.
"""

import io
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

from workbench.__main__ import main
from workbench.models import keeper

ROOT = Path(__file__).parents[2]
PAIR = ("--models", "assets/stories/target", "assets/stories/draft", "--device", "cpu",
    "--dtype", "float32")  # fmt: skip
SAMPLING = ("--top-k", "20", "--top-p", "0.9", "--min-p", "0", "--seed", "3")
MEASURED = re.compile(r"(tokens/s|× greedy|time to first|seconds|J/token|energy)")
RULE = """
def verify(p, q, tokens, source):
    for i, token in enumerate(tokens):
        if not source.accept(p[i, token] / q[i, token]):
            return i, source.draw((p[i] - q[i]).clamp(min=0))
    return len(tokens), source.draw(p[-1])

def lenient(p, q, tokens, source):
    for i, token in enumerate(tokens):
        if not source.accept(2 * p[i, token] / q[i, token]):
            return i, source.draw((2 * p[i] - q[i]).clamp(min=0))
    return len(tokens), source.draw(p[-1])
"""


@contextmanager
def home(folder: Path, **others: str) -> Iterator[None]:
    """While this lasts, runs are kept in the folder, lines are wide, and one thread computes."""
    own = {"WORKBENCH_DATA": str(folder), "WORKBENCH_THREADS": "1", "COLUMNS": "400"}
    own |= others
    loads, keeper.load = keeper.load, cache(keeper.load)  # one pair for all calls
    before, where = {name: os.environ.get(name) for name in own}, Path.cwd()
    os.environ.update(own)
    os.chdir(ROOT)
    try:
        yield
    finally:
        os.chdir(where)
        keeper.load = loads
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def call(*words: str) -> tuple[int, str]:
    """The exit status of `decoding-workbench WORDS`, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(list(words))
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue() if status in (0, 1) else err.getvalue()


def printed(folder: Path, proofs: bool = True) -> dict[str, Any]:
    """Seven calls, five without `proofs`: of each its words, exit status and masked lines."""
    rule = folder / "rule.py"
    rule.write_text(RULE)
    found = {}

    def run(*words: str) -> None:
        status, text = call(*words)
        found[" ".join(words).replace(str(folder), "FOLDER")] = [status, *masked(text)]

    with home(folder):
        run("compare", "Once upon a time", *PAIR, "--decoders", "greedy", "speculative",
            "mtad", "lookup", "--set", "speculative.draft_length=4", "--set", "mtad.beams=8",
            "--set", "mtad.draft_length=4", "--set", "lookup.copy=7", "--set", "lookup.match=2",
            "--temperature", "0", *SAMPLING, "--max-new-tokens", "16",
            "--repeats", "1", "--timings", "1")  # fmt: skip
        run("compare", "Tom had a red ball. Tom had", *PAIR, "--decoders", "multinomial",
            "dsbd", "block", "typical", "--set", "dsbd.draft_length=2", "--set",
            "block.draft_length=3", "--temperature", "1", *SAMPLING, "--max-new-tokens", "12",
            "--repeats", "2", "--timings", "1")  # fmt: skip
        run("draw", "Once upon a time", *PAIR, "--draws", "12", "--decoders", "multinomial",
            "mtad", "dsbd", "--temperature", "1", *SAMPLING, "--max-new-tokens", "3")  # fmt: skip
        run("batch", "--prompts", "refrains", "--count", "3", *PAIR, "--decoders", "lookup",
            "speculative", "--set", "speculative.draft_length=4", "--set", "lookup.copy=7",
            "--sizes", "1", "3", "--schemes", "vanilla", "unpadded", "--max-new-tokens", "8",
            "--temperature", "0", *SAMPLING, "--repeats", "1")  # fmt: skip
        if proofs:
            run("prove", str(rule))
            run("prove", str(rule), "--function", "lenient")
        run("runs", "list", "--order", "oldest")
    return found


def masked(text: str) -> list[str]:
    """The lines, without what a clock measured, and with one space between cells as with ten."""
    lines: list[str] = []
    columns: list[int] = []
    table = clocked = False
    for line in text.splitlines():
        line = re.sub(r"\b[0-9a-f]{12}\b", "ID", line.rstrip())
        line = re.sub(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d\S*", "DATE", line)
        cells = re.split(r" {2,}", line)
        if not line:
            table = clocked = False
        elif not table and len(cells) > 1:
            table, columns = True, [i for i, cell in enumerate(cells) if MEASURED.match(cell)]
            clocked = bool(columns)
        elif table and len(cells) < 2:
            if clocked:
                continue
        elif re.match("energy|J/", line):
            continue  # only where the machine has a meter
        elif table:
            if MEASURED.match(cells[0]):
                columns_here, clocked = range(1, len(cells)), True
            else:
                columns_here = columns
            cells = ["#" if i in columns_here else cell for i, cell in enumerate(cells)]
        lines.append(" | ".join(map(_unworded, cells)))
    return lines


def _unworded(cell: str) -> str:
    """A sentence as an ellipsis and its decimals; any other cell as it is."""
    if re.match("[A-Z“]", cell) and cell.endswith(".") and cell.count(" ") > 4:
        return " ".join(["…", *re.findall(r"\d+\.\d+", cell)])
    return cell


def measured_batch(folder: Path) -> Any:
    """The JSON of a batch, which has no endpoint."""
    path = folder / "batch.json"
    with home(folder):
        status, said = call("batch", "--prompts", "refrains", "--count", "3", *PAIR, "--decoders",
            "lookup", "mtad", "--set", "lookup.copy=7", "--set", "lookup.match=2",
            "--set", "mtad.draft_length=4", "--set", "mtad.beams=4", "--sizes", "2",
            "3", "--schemes", "vanilla", "dynamic", "unpadded", "--max-new-tokens", "10",
            "--temperature", "1", *SAMPLING, "--repeats", "2", "--no-save", "--json", str(path),
        )  # fmt: skip
    assert status == 0, said
    return json.loads(path.read_text())
