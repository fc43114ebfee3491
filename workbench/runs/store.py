"""The file that keeps runs."""

import json
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import platformdirs

from decoders import InputError
from workbench.runs.estimates import Fastest, fastest
from workbench.runs.record import Run
from workbench.runs.recorded import recorded
from workbench.studies.prompts import is_text

Order = Literal["newest", "oldest", "title"]
ORDERS = {
    "newest": "created DESC, rowid DESC",
    "oldest": "created, rowid",
    "title": "title COLLATE NOCASE, created DESC",
}
CREATE = (
    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, created TEXT NOT NULL, prompt TEXT NOT NULL, decoders TEXT NOT NULL, "
    "models TEXT NOT NULL, json TEXT NOT NULL)"
)
# Version 2 adds the kind; the title is in `prompt`, as in version 1.
ADD_KIND = "ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT 'comparison'"

# Version 3 adds what the list shows of the figures, so that no run need be read for it: "" if there is nothing to show.
ADD_FASTEST = "ALTER TABLE runs ADD COLUMN fastest TEXT"

INTO_RUNS = "INTO runs (id, created, prompt, decoders, models, json, kind, fastest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A line in the list of past runs."""

    id: str
    created: str
    kind: str
    title: str
    decoders: list[str]
    models: str
    fastest: Fastest | None = None


def new_id() -> str:
    """An id for a run that is new here."""
    return secrets.token_hex(6)


class RunStore:
    """Past runs in one SQLite file, which several processes may use at once. Every call opens, commits and closes.

    path  the file; default `runs.sqlite` in the folder WORKBENCH_DATA names, or else in the user's data directory
    Every method raises InputError, in one sentence, if the file cannot be used.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path or data_folder() / "runs.sqlite")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        with self._open() as db:
            db.execute("PRAGMA journal_mode = WAL")  # readers and a writer at once
            db.execute(CREATE)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")  # of two processes that find the file of version 1, one adds the column
            if "kind" not in {column[1] for column in db.execute("PRAGMA table_info(runs)")}:
                db.execute(ADD_KIND)
            if "fastest" not in {column[1] for column in db.execute("PRAGMA table_info(runs)")}:
                db.execute(ADD_FASTEST)
                for id, text in db.execute("SELECT id, json FROM runs").fetchall():
                    with suppress(InputError):  # a row that is no run is listed without
                        db.execute("UPDATE runs SET fastest = ? WHERE id = ?", (_fastest(Run.from_json(text)), id))

    def save(self, run: Run) -> None:
        """Keep a run of this workbench; one with the same id is replaced."""
        with self._open() as db:
            db.execute(f"INSERT OR REPLACE {INTO_RUNS}", _row(run))

    def add(self, run: Run) -> Run:
        """Keep a run that comes from outside: under a new id if there is one with its own, or a recorded one, so that it never replaces another."""
        if recorded(run.id) is not None:
            run = replace(run, id=new_id())
        with self._open() as db:
            if db.execute(f"INSERT OR IGNORE {INTO_RUNS}", _row(run)).rowcount == 0:
                run = replace(run, id=new_id())
                db.execute(f"INSERT {INTO_RUNS}", _row(run))
        return run

    def list(
        self, limit: int | None = None, *, kind: str | None = None, search: str = "", order: Order = "newest"
    ) -> list[RunSummary]:
        """Past runs: of one kind or all, whose title, decoders, models or id contain every word of `search`."""
        if not is_text(search):
            return []
        conditions, values = (["kind = ?"], [kind]) if kind else ([], [])
        for word in search.split():
            conditions.append("instr(lower(prompt || ' ' || decoders || ' ' || models || ' ' || id), lower(?)) > 0")
            values.append(word)
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        columns = "id, created, kind, prompt AS title, decoders, models, fastest"
        query = f"SELECT {columns} FROM runs {where}ORDER BY {ORDERS[order]} LIMIT ?"
        with self._open() as db:
            found = db.execute(query, (*values, -1 if limit is None else limit)).fetchall()
        return [
            RunSummary(
                id, created, kind, title, json.loads(names), models, Fastest(*json.loads(figures)) if figures else None
            )
            for id, created, kind, title, names, models, figures in found
        ]

    def get(self, id: str) -> Run:
        """A past run, or one that was recorded beforehand. Raises InputError if there is no such run."""
        if (found := recorded(id)) is not None:
            return found.run
        with self._open() as db:
            row = db.execute("SELECT json FROM runs WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise InputError(f"There is no run {id!r}; it may have been deleted.")
        return Run.from_json(row[0])

    def delete(self, id: str) -> None:
        """Raises InputError if there is no such run."""
        with self._open() as db:
            if db.execute("DELETE FROM runs WHERE id = ?", (id,)).rowcount == 0:
                raise InputError(f"There is no run {id!r}; it may have been deleted.")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
                yield db
        except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> InputError:
        return InputError(f"Runs cannot be kept in {self.path} ({error}); set WORKBENCH_DATA to another folder.")


def _row(run: Run) -> tuple[str, ...]:
    return run.id, run.created, run.title, json.dumps(run.decoders), run.models, run.dumps(), run.kind, _fastest(run)


def _fastest(run: Run) -> str:
    found = fastest(run)
    return json.dumps(found) if found else ""


def data_folder() -> Path:
    """Where the workbench keeps the user's files."""
    return Path(os.environ.get("WORKBENCH_DATA") or platformdirs.user_data_dir("decoding-workbench", appauthor=False))
