"""Hostile input: forged runs, and rows of the file of runs that no program wrote."""

import contextlib
import copy
import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.workbench.kinds.test_registry import HOSTILE, TOO_MUCH, changed, places
from workbench import assets

# Columns of one row, and what stands in them instead. SQLite takes anything anywhere.
WRONG = (
    "'['", "'{}'", "'[]'", "x'ff00'", "CAST(x'ff' AS TEXT)", "7", "1e999", "''", "'[null]'",
    "'<img src=x onerror=alert(1)>'",
)  # fmt: skip
LONG = "hex(zeroblob(1000000))"  # two million characters
ROWS = tuple(
    f"runs SET {column} = {value}"
    for column in ("id", "created", "prompt", "decoders", "models", "json", "kind")
    for value in (*WRONG, LONG)
)


@contextlib.contextmanager
def damaged(path: Path, change: str) -> Iterator[None]:
    """While this lasts, the first row of a table is damaged so."""
    table = change.split()[0]
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as db:
        row = db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid LIMIT 1").fetchone()
        names = [column[1] for column in db.execute(f"PRAGMA table_info({table})")]
        with db:
            change = change.split(" SET ")[1]
            db.execute(f"UPDATE OR IGNORE {table} SET {change} WHERE rowid = ?", row[:1])
        try:
            yield
        finally:
            with db:
                db.execute(f"DELETE FROM {table} WHERE rowid = ?", row[:1])
                marks = ", ".join("?" * len(row))
                db.execute(f"INSERT INTO {table} (rowid, {', '.join(names)}) VALUES ({marks})", row)


def forged(count: int) -> Iterator[bytes]:
    """Runs that no workbench wrote: too much of everything, then any value anywhere in a real
    run."""
    recorded = [
        json.loads(file.read_text("utf-8"))["run"]
        for file in sorted((assets() / "recorded").glob("*.json"))
    ]
    for data in recorded:
        data["results"] = data["results"][:3]
    found = [(data, list(places(data))) for data in recorded]
    for name in list(TOO_MUCH)[: max(1, count // 30)]:  # the last ones are large
        data = copy.deepcopy(recorded[0])
        TOO_MUCH[name](data)
        yield json.dumps(data).encode()
    values: tuple[Any, ...] = ("remove", *HOSTILE, "z" * 15_000)
    for _ in range(count):
        data, where = random.choice(found)
        head = [place for place in where if place[:1] != ("results",)]
        path = random.choice(random.choice((head, where)))
        yield json.dumps(changed(data, path, random.choice(values))).encode()
