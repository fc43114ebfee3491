"""What is stored: runs of every version, experiments of version 1, and what opening them gives.

Databases lie here as the SQL that writes them, FOLDER in place of the folder that they were in.
"""

import csv
import io
import json
import lzma
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.golden import records
from tests.golden.files import DATA
from tests.golden.terminal import PAIR, ROOT, call, home, printed

RUNS = ROOT / "tests" / "workbench" / "runs"
FILES = (
    RUNS / "version1" / "comparison.json", RUNS / "version1" / "comparison_t0.json",
    RUNS / "version1" / "batch.json", RUNS / "version2" / "draw.json",
)  # fmt: skip
OLD_RUNS = RUNS / "version1" / "runs.sqlite"
# Those that the page showed at 00d05b0, by the name of their file; others have taken their place.
RECORDED = DATA / "recorded.json.xz"
WRITTEN = {name: DATA / f"{name}.sql.xz" for name in ("runs", "experiments")}
PLAN = """
[[part]]
name = "timed"
limit = 2
max_new_tokens = 8
temperature = 1.0
top_k = 20
top_p = 0.9
decoders = ["greedy", { name = "speculative", draft_length = 4 }, { name = "mtad", beams = 4 }]
[[part]]
name = "quality"
prompts = ["refrains"]
limit = 2
timed = false
max_new_tokens = 8
temperature = 0.0
decoders = [{ name = "lookup", copy = 5 }]
"""


def write(folder: Path) -> None:
    """The databases of this version's code, by the program's own calls."""
    printed(folder)
    (folder / "small.toml").write_text(PLAN)
    with home(folder):
        status, said = call("experiment", str(folder / "small.toml"), *PAIR)
    assert status == 0, said
    for name, path in WRITTEN.items():
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            script = "\n".join([f"PRAGMA user_version = {version};", *db.iterdump()])
        script = script.replace(str(folder), "FOLDER")
        path.write_bytes(lzma.compress(script.encode(), preset=9 | lzma.PRESET_EXTREME))


def opened(folder: Path) -> dict[str, Any]:
    """By source and id: what the program says of each run and experiment that is stored."""
    found: dict[str, Any] = {}
    with _home(folder / "files"):
        for path in FILES:
            status, said = call("runs", "import", str(path))
            assert status == 0, said
            found[path.name] = _run(folder, said.split()[-1])
        for name, run in json.loads(lzma.decompress(RECORDED.read_bytes())).items():
            (folder / name).write_text(json.dumps(run))
            status, said = call("runs", "import", str(folder / name))
            assert status == 0, said
            # What comes from outside has an id of its own.
            found[f"recorded {name}"] = {**_run(folder, said.split()[-1]), "id": run["id"]}
    shutil.copy(OLD_RUNS, _made(folder / "old") / "runs.sqlite")
    for name, path in WRITTEN.items():
        _database(folder / "new", name, lzma.decompress(path.read_bytes()))
    for name in ("old", "new"):
        with _home(folder / name):
            found[f"{name} runs"] = {id: _run(folder, id) for id in _ids("runs", "list")}
            if name == "old":  # those of version 0 are opened no more
                continue
            found[f"{name} experiments"] = {
                line.split()[0]: _experiment(folder / name, line)
                for line in _lines("experiment", "--list")
            }
    return found


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _home(folder: Path) -> Any:
    return home(_made(folder))


def _database(folder: Path, name: str, script: bytes) -> None:
    with closing(sqlite3.connect(_made(folder) / f"{name}.sqlite")) as db, db:
        db.executescript(script.decode().replace("FOLDER", str(folder)))
    (folder / "own.txt").write_text("\n".join(f"prompt {i}" for i in range(9)))


def _lines(*words: str) -> list[str]:
    lines = call(*words)[1].splitlines()
    return [line for line in lines if re.match(r"[0-9a-f]{12} ", line)]


def _ids(*words: str) -> list[str]:
    return [line.split()[0] for line in _lines(*words)]


def _run(folder: Path, id: str) -> dict[str, Any]:
    path = folder / f"{id}.json"
    status, said = call("runs", "export", id, str(path))
    assert status == 0, said
    return records.opened(json.loads(path.read_text()))


def _experiment(folder: Path, line: str) -> dict[str, Any]:
    """Its line in the list, and the rows of its report."""
    id, *cells = re.split(r" {2,}", line.strip())
    status, said = call("experiment", "report", id, "--to", "csv", "--out", str(folder))
    assert status == 0, said
    (path,) = folder.glob(f"*-{id}.csv")
    return {"listed": cells, "rows": [*csv.DictReader(io.StringIO(path.read_text()))]}
