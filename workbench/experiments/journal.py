"""The file that keeps experiments: rows as they are finished, and who is at work on what. Only the driver writes to it."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from decoders import InputError
from workbench.experiments.cells import Block
from workbench.experiments.owners import alive
from workbench.experiments.rows import Row
from workbench.runs.store import data_folder

CREATE = """
CREATE TABLE IF NOT EXISTS experiments (id TEXT PRIMARY KEY, created TEXT NOT NULL, title TEXT NOT NULL, request TEXT NOT NULL,
  environment TEXT NOT NULL, total INTEGER NOT NULL, stop INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS cells (experiment TEXT NOT NULL, part TEXT NOT NULL, cell TEXT NOT NULL, place INTEGER NOT NULL,
  label TEXT NOT NULL, block TEXT NOT NULL, items INTEGER NOT NULL, asked TEXT NOT NULL, PRIMARY KEY (experiment, part, cell));
CREATE TABLE IF NOT EXISTS rows (cell TEXT NOT NULL, item INTEGER NOT NULL, block TEXT NOT NULL, created TEXT NOT NULL,
  json TEXT NOT NULL, PRIMARY KEY (cell, item));
CREATE INDEX IF NOT EXISTS rows_of_blocks ON rows (block, item);
CREATE TABLE IF NOT EXISTS claims (block TEXT NOT NULL, item INTEGER NOT NULL, owner TEXT NOT NULL, beat REAL NOT NULL,
  PRIMARY KEY (block, item));
CREATE TABLE IF NOT EXISTS drivers (experiment TEXT NOT NULL, owner TEXT NOT NULL, beat REAL NOT NULL,
  eta REAL, doing TEXT NOT NULL DEFAULT '', PRIMARY KEY (experiment, owner));
"""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an experiment is: `done` items of `total`; `failed` rows with an error; `running` while a driver is alive.

    eta  seconds left, None if not known;   doing  one line about what is decoded now
    """

    id: str
    title: str
    created: str
    done: int
    total: int
    failed: int
    running: bool
    stopping: bool
    eta: float | None
    doing: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A cell of an experiment and its rows by item."""

    part: str
    cell: str
    label: str
    block: str
    items: int
    asked: dict[str, Any]
    rows: dict[int, Row]


class Journal:
    """Every method raises InputError, in one sentence, if the file cannot be used; what was committed stays.

    path     default: `experiments.sqlite` beside the past runs;   patience  seconds to wait for a file that another process holds
    """

    def __init__(self, path: str | Path | None = None, patience: float = 30.0, now: Callable[[], float] = time.time):
        self.path, self._patience, self._now = Path(path or data_folder() / "experiments.sqlite"), patience, now
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        with self._open() as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(CREATE)

    # ---- experiments

    def begin(
        self, id: str, title: str, request: dict[str, Any], environment: dict[str, Any], blocks: Sequence[Block]
    ) -> None:
        """Keep what an experiment is; one that is there already is continued, and drawn as the plan says now."""
        total = sum(len(block.items) for block in {b.id: b for b in blocks}.values())
        with self._open() as db:
            db.execute(
                "INSERT OR IGNORE INTO experiments (id, created, title, request, environment, total) VALUES (?, ?, ?, ?, ?, ?)",
                (id, _date(), title, json.dumps(request), json.dumps(environment), total),
            )
            db.execute(
                "UPDATE experiments SET title = ?, request = ?, stop = 0 WHERE id = ?", (title, json.dumps(request), id)
            )
            for place, (block, i) in enumerate((b, i) for b in blocks for i in range(len(b.cells))):
                asked = json.dumps(block.cells[i].to_json())
                values = (id, block.part, block.ids[i], place, block.labels[i], block.id, len(block.items), asked)
                db.execute("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def experiments(self, limit: int = 50) -> list[Progress]:
        with self._open() as db:
            ids = [
                i
                for (i,) in db.execute("SELECT id FROM experiments ORDER BY created DESC, rowid DESC LIMIT ?", (limit,))
            ]
        return [self.progress(id) for id in ids]

    def experiment(self, id: str) -> dict[str, Any]:
        """Its title, request (what it was asked) and environment. Raises InputError if there is none."""
        with self._open() as db:
            query = "SELECT id, created, title, request, environment FROM experiments WHERE id = ?"
            found = db.execute(query, (id,)).fetchone()
        if found is None:
            raise InputError(f"There is no experiment {id!r:.80}; `experiment --list` shows those there are.")
        names = ("id", "created", "title", "request", "environment")
        return {n: json.loads(v) if n in names[3:] else v for n, v in zip(names, found, strict=True)}

    def progress(self, id: str) -> Progress:
        with self._open() as db:
            found = db.execute("SELECT title, created, total, stop FROM experiments WHERE id = ?", (id,)).fetchone()
            if found is None:
                raise InputError(f"There is no experiment {id!r:.80}.")
            title, created, total, stop = found
            of = "FROM rows WHERE block IN (SELECT block FROM cells WHERE experiment = ?)"
            (done,) = db.execute(f"SELECT count(*) FROM (SELECT DISTINCT block, item {of})", (id,)).fetchone()
            (failed,) = db.execute(f'SELECT count(*) {of} AND json LIKE \'%"error":"%\'', (id,)).fetchone()
            drivers = db.execute("SELECT owner, beat, eta, doing FROM drivers WHERE experiment = ?", (id,)).fetchall()
        at_work = [d for d in drivers if alive(d[0], d[1], self._now())]
        eta = min((d[2] for d in at_work if d[2] is not None), default=None)
        doing = at_work[0][3] if at_work else ""
        return Progress(id, title, created, min(done, total), total, failed, bool(at_work), bool(stop), eta, doing)

    def ask_to_stop(self, id: str) -> None:
        """Its drivers stop after what they are at work on."""
        with self._open() as db:
            db.execute("UPDATE experiments SET stop = 1 WHERE id = ?", (id,))

    def asked_to_stop(self, id: str) -> bool:
        with self._open() as db:
            found = db.execute("SELECT stop FROM experiments WHERE id = ?", (id,)).fetchone()
        return bool(found and found[0])

    def kept(self, id: str) -> list[Kept]:
        """The experiment's cells in order, each with the rows that are finished."""
        with self._open() as db:
            query = "SELECT part, cell, label, block, items, asked FROM cells WHERE experiment = ? ORDER BY place"
            cells = db.execute(query, (id,)).fetchall()
            found: dict[str, dict[int, Row]] = {cell: {} for _, cell, *_ in cells}
            query = "SELECT cell, item, json FROM rows WHERE cell IN (SELECT cell FROM cells WHERE experiment = ?)"
            for cell, item, text in db.execute(query, (id,)):
                found[cell][item] = Row.loads(cell, item, text)
        return [
            Kept(part, cell, label, block, items, json.loads(asked), {i: r for i, r in sorted(found[cell].items()) if i < items})
            for part, cell, label, block, items, asked in cells
        ]  # fmt: skip

    # ---- work

    def claim(self, block: Block, owner: str) -> int | None:
        """An item of the block that nobody has done or is at work on, which is now the owner's; None if there is none."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            done = {i for (i,) in db.execute("SELECT DISTINCT item FROM rows WHERE block = ?", (block.id,))}
            claims = db.execute("SELECT item, owner, beat FROM claims WHERE block = ?", (block.id,)).fetchall()
            taken = {item for item, other, beat in claims if alive(other, beat, self._now())}
            for item in range(len(block.items)):
                if item not in done and item not in taken:
                    db.execute(
                        "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", (block.id, item, owner, self._now())
                    )
                    return item
        return None

    def left(self, blocks: Iterable[Block]) -> dict[str, int]:
        """For each block's id how many items have no rows yet, whoever is at work on them."""
        query = "SELECT count(DISTINCT item) FROM rows WHERE block = ? AND item < ?"
        with self._open() as db:
            return {b.id: len(b.items) - db.execute(query, (b.id, len(b.items))).fetchone()[0] for b in blocks}

    def commit(self, block: Block, item: int, owner: str, rows: Sequence[Row]) -> bool:
        """Keep an item's rows, all or none; False if the claim was lost to another process meanwhile."""
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            mine = "block = ? AND item = ? AND owner = ?"
            if db.execute(f"DELETE FROM claims WHERE {mine}", (block.id, item, owner)).rowcount == 0:
                return False
            date = _date()
            for row in rows:
                db.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (row.cell, item, block.id, date, row.dumps()))
        return True

    def release(self, block: Block, item: int, owner: str) -> None:
        """Give one item back."""
        with self._open() as db:
            db.execute("DELETE FROM claims WHERE block = ? AND item = ? AND owner = ?", (block.id, item, owner))

    def beat(self, id: str, owner: str, eta: float | None, doing: str) -> None:
        """Say that the owner is alive, and what it does."""
        with self._open() as db:
            db.execute("UPDATE claims SET beat = ? WHERE owner = ?", (self._now(), owner))
            db.execute("INSERT OR REPLACE INTO drivers VALUES (?, ?, ?, ?, ?)", (id, owner, self._now(), eta, doing))

    def leave(self, owner: str) -> None:
        """Give back what the owner had claimed."""
        with self._open() as db:
            db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
            db.execute("DELETE FROM drivers WHERE owner = ?", (owner,))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=self._patience)) as db, db:
                yield db
        except (OSError, sqlite3.Error) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> InputError:
        text = str(error)
        if "locked" in text or "busy" in text:
            fix = "another program holds it; close that program, then resume"
        elif "full" in text or getattr(error, "errno", None) == 28:
            fix = "the disk is full; free some space, then resume"
        else:
            fix = "set WORKBENCH_DATA to another folder"
        return InputError(
            f"Experiments cannot be kept in {self.path} ({text}): {fix}. What was committed before is kept."
        )


def _date() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
