"""Past runs: the SQLite files that keep runs and experiments.

Runs and experiments lie in two files of one schema; notes/experiments.md says why.
"""

import hashlib
import json
import os
import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import platformdirs
from pydantic import ConfigDict, TypeAdapter, ValidationError

from decoders import InputError
from decoders.errors import quoted
from workbench import assets
from workbench.runs.record import Run
from workbench.studies.prompts import is_text
from workbench.studies.settings import with_seed

VERSION = 1  # of the numbers of `rows`
TOO_OLD = "its experiments are of version 0, which only earlier versions read"
# Each further timing adds this to an item's number: under any limit, the third timing of prompt 5
# is number 2000000005.
NEXT_TIMING = 10**9
# The title of a run is in `prompt`, as in version 1. `items` counts those of the cell, all timings
# together.
CREATE = """
CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, created TEXT NOT NULL, prompt TEXT NOT NULL,
  decoders TEXT NOT NULL, models TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS experiments (id TEXT PRIMARY KEY, created TEXT NOT NULL,
  title TEXT NOT NULL, request TEXT NOT NULL, environment TEXT NOT NULL, total INTEGER NOT NULL,
  stop INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS cells (experiment TEXT NOT NULL, part TEXT NOT NULL, cell TEXT NOT NULL,
  place INTEGER NOT NULL, label TEXT NOT NULL, block TEXT NOT NULL, items INTEGER NOT NULL,
  asked TEXT NOT NULL, timings INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (experiment, part, cell));
CREATE TABLE IF NOT EXISTS rows (cell TEXT NOT NULL, item INTEGER NOT NULL, block TEXT NOT NULL,
  created TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (cell, item));
CREATE INDEX IF NOT EXISTS rows_of_blocks ON rows (block, item);
CREATE TABLE IF NOT EXISTS claims (block TEXT NOT NULL, item INTEGER NOT NULL, owner TEXT NOT NULL,
  beat REAL NOT NULL, PRIMARY KEY (block, item));
CREATE TABLE IF NOT EXISTS drivers (experiment TEXT NOT NULL, owner TEXT NOT NULL,
  beat REAL NOT NULL, eta REAL, doing TEXT NOT NULL DEFAULT '', PRIMARY KEY (experiment, owner))
"""
# Columns that files of earlier versions lack. `asked` is shown in the list of runs, so that it need
# not read the runs.
ADDED = {"kind": "TEXT NOT NULL DEFAULT 'comparison'", "asked": "TEXT"}
JSON = "CAST(ifnull(json, '') AS TEXT)"


def data_folder() -> Path:
    return Path(
        os.environ.get("WORKBENCH_DATA")
        or platformdirs.user_data_dir("decoding-workbench", appauthor=False)
    )


class Database(ABC):
    """A SQLite file, which several processes may use at once.

    Every call opens, commits and closes.

    Args:
        path: the file; by default FILE in the folder WORKBENCH_DATA names, or else in the user's
            data directory
        patience: seconds to wait for a file that another process holds

    Raises:
        InputError: from every method, in one sentence, if the file cannot be used; everything
            committed stays
    """

    FILE = ""

    def __init__(self, path: str | Path | None = None, patience: float = 30.0):
        self.path, self._patience = Path(path or data_folder() / self.FILE), patience
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        # SQLite does not wait if another process does this at the same moment.
        with self._open() as db, suppress(sqlite3.OperationalError):
            db.execute("PRAGMA journal_mode = WAL")  # readers and a writer at once
        with self._open() as db:
            if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("it is damaged")
            if missing(db):
                # One transaction that waits for other processes, which may do it meanwhile.
                db.execute("BEGIN IMMEDIATE")
                bring_up_to_date(db, missing(db))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=self._patience)) as db, db:
                # A row may be damaged in any way.
                db.text_factory = lambda text: text.decode(errors="replace")
                yield db
        except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
            raise self._unusable(error) from error

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._open() as db:
            return db.execute(statement, values).fetchall()

    @abstractmethod
    def _unusable(self, error: Exception) -> InputError:
        """The error in the words of this store."""


def missing(db: sqlite3.Connection) -> set[str]:
    """What a file of an earlier version lacks: columns of its runs, and the numbers of its rows."""
    columns = {column[1] for column in db.execute("PRAGMA table_info(runs)")}
    numbered = db.execute("PRAGMA user_version").fetchone()[0] == VERSION
    return ADDED.keys() - columns | (set() if numbered else {"numbers"})


def bring_up_to_date(db: sqlite3.Connection, lacks: set[str]) -> None:
    """Make or update the tables; raises sqlite3.DatabaseError for experiments of version 0.

    Args:
        lacks: what `missing` found
    """
    old_rows = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone()
    if "numbers" in lacks and old_rows:
        raise sqlite3.DatabaseError(TOO_OLD)
    for statement in CREATE.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
    for name in ADDED.keys() & lacks:
        db.execute(f"ALTER TABLE runs ADD COLUMN {name} {ADDED[name]}")
    if "asked" in lacks:
        for id, text in db.execute(f"SELECT id, {JSON} FROM runs").fetchall():
            with suppress(InputError):  # a row that is no run is listed without it
                asked = with_seed(Run.from_json(text).settings)
                db.execute("UPDATE runs SET asked = ? WHERE id = ?", (asked, id))


Order = Literal["newest", "oldest", "title"]
ORDERS = {
    "newest": "created DESC, rowid DESC",
    "oldest": "created, rowid",
    "title": "prompt COLLATE NOCASE, created DESC",
}
INTO_RUNS = (
    "INTO runs (id, created, prompt, decoders, models, json, kind, asked) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
# Characters that a list reads of a title, of the models' names and of the sampling settings.
SHOWN = 200
# A row may be damaged in any way: every column is cut before it is read, and taken as text. A row
# without a valid id is named by its place.
READ = {
    "created": 40, "kind": 40, "prompt": SHOWN, "decoders": 10_000, "models": SHOWN,
    "asked": SHOWN,
}  # fmt: skip
COLUMNS = ", ".join(
    f"CAST(substr(ifnull({name}, ''), 1, {most}) AS TEXT)" for name, most in READ.items()
)
ID = (
    "CASE WHEN typeof(id) = 'text' AND length(id) BETWEEN 1 AND 64 "
    "AND id NOT GLOB '*[^0-9a-f]*' THEN id ELSE 'row ' || rowid END"
)
DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A line in the list of past runs.

    Attributes:
        id: the run's id
        created: UTC, ISO 8601
        kind: kind of the study; DAMAGED for a damaged row
        title: its title; of a damaged row it says so
        decoders: its decoders
        models: the pair in one line
        asked: the sampling settings, in words
    """

    id: str
    created: str
    kind: str
    title: str
    decoders: list[str]
    models: str
    asked: str = ""


_LISTED = TypeAdapter(list[str], config=ConfigDict(strict=True))


def new_id() -> str:
    return secrets.token_hex(6)


class RunStore(Database):
    """Past runs in one file; its arguments are those of `Database`."""

    FILE = "runs.sqlite"

    def save(self, run: Run) -> None:
        self._rows(f"INSERT OR REPLACE {INTO_RUNS}", *_row(run))

    def add(self, run: Run) -> Run:
        """Keep a run that comes from outside.

        It never replaces another: if there is a run with its id, or a recorded one, it gets a new
        id.
        """
        if recorded(run.id) is not None:
            run = replace(run, id=new_id())
        with self._open() as db:
            if db.execute(f"INSERT OR IGNORE {INTO_RUNS}", _row(run)).rowcount == 0:
                run = replace(run, id=new_id())
                db.execute(f"INSERT {INTO_RUNS}", _row(run))
        return run

    def list(
        self, limit: int | None = None, *, kind: str | None = None, search: str = "",
        order: Order = "newest",
    ) -> list[RunSummary]:  # fmt: skip
        """Past runs whose title, decoders, models or id contain every word of `search`.

        Args:
            limit: the most runs
            kind: list only runs of this kind
            order: "newest", "oldest" or "title"

        Returns:
            the runs, with titles and models' names cut at SHOWN characters
        """
        if not is_text(search):
            return []
        words = search.split()
        shown = "lower(prompt || ' ' || decoders || ' ' || models || ' ' || id)"
        conditions = ["kind = ?"] * bool(kind) + [f"instr({shown}, lower(?)) > 0"] * len(words)
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        query = f"SELECT {ID}, {COLUMNS} FROM runs {where}ORDER BY {ORDERS[order]} LIMIT ?"
        values = (*([kind] if kind else []), *words, -1 if limit is None else limit)
        return [_summary(*row) for row in self._rows(query, *values)]

    def get(self, id: str) -> Run:
        """A past run, or a recorded one.

        Raises:
            InputError: if there is no such run, or if it is damaged
        """
        if (recording := recorded(id)) is not None:
            return recording.run
        rows = self._rows(f"SELECT {JSON} FROM runs WHERE {ID} = ? LIMIT 1", id)
        if not rows:
            raise InputError(f"There is no run {quoted(id)}; it may have been deleted.")
        try:
            return Run.from_json(rows[0][0])
        except InputError as error:
            raise InputError(f"The run {id} cannot be read, only deleted. {error}") from None

    def has(self, id: str) -> bool:
        """Whether there is a run with this id; False also if the file cannot be used."""
        with suppress(InputError):
            return self.get(id).id == id
        return False

    def delete(self, id: str) -> None:
        with self._open() as db:
            if db.execute(f"DELETE FROM runs WHERE {ID} = ?", (id,)).rowcount == 0:
                raise InputError(f"There is no run {quoted(id)}; it may have been deleted.")

    def _unusable(self, error: Exception) -> InputError:
        return InputError(
            f"Runs cannot be kept in {self.path} ({error}); set WORKBENCH_DATA to another folder."
        )


def _row(run: Run) -> tuple[str, ...]:
    return (
        run.id, run.created, run.title, json.dumps(run.decoders), run.models, run.dumps(),
        run.kind, with_seed(run.settings),
    )  # fmt: skip


def _summary(
    id: str, created: str, kind: str, title: str, decoders: str, models: str, settings: str
) -> RunSummary:
    try:
        listed = _LISTED.validate_json(decoders)
    except ValidationError:
        says = f"This row is damaged and can only be deleted: {id}"
        return RunSummary(id, created, DAMAGED, says, [], models)
    return RunSummary(id, created, kind, title, listed, models, settings)


# ---- Runs measured beforehand, which the page shows before anybody presses Run; tools/record.py
# writes them

FOLDER = assets() / "recorded"
# Joules a token that a card took, by NVML's counter; notes/cuda.md says how.
ENERGY_ON_GPU = assets() / "batch" / "energy.json"


@dataclass(frozen=True)
class Recording:
    """A recorded run.

    Attributes:
        title: its name in a gallery
        says: a sentence on what it shows
        weights: checksum of the pair's weights at that time
        run: the run
    """

    title: str
    says: str
    weights: str
    run: Run

    @staticmethod
    def from_json(text: str) -> "Recording":
        data = json.loads(text)
        return Recording(**{**data, "run": Run.from_json(json.dumps(data["run"]))})


@cache
def recordings() -> tuple[Recording, ...]:
    return tuple(
        Recording.from_json(file.read_text(encoding="utf-8"))
        for file in sorted(FOLDER.glob("*.json"))
    )


def recorded(id: str) -> Recording | None:
    return next((each for each in recordings() if each.run.id == id), None)


def id_of(name: str) -> str:
    """The id of a recorded run; it stays when the run is recorded again, so links keep working."""
    return hashlib.sha256(f"recorded {name}".encode()).hexdigest()[:12]
