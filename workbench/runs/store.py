"""The file that keeps runs."""

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal

import platformdirs

from decoders import InputError
from decoders.errors import quoted
from workbench.runs.ranking import fastest
from workbench.runs.record import Run
from workbench.runs.recorded import recorded
from workbench.runs.summary import COLUMNS, ID, RunSummary, summary
from workbench.studies.presets import asked
from workbench.studies.prompts import is_text

Order = Literal["newest", "oldest", "title"]
ORDERS = {
    "newest": "created DESC, rowid DESC",
    "oldest": "created, rowid",
    "title": "prompt COLLATE NOCASE, created DESC",
}
CREATE = (
    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, created TEXT NOT NULL, "
    "prompt TEXT NOT NULL, decoders TEXT NOT NULL, models TEXT NOT NULL, json TEXT NOT NULL)"
)
# Version 2 adds the kind; the title is in `prompt`, as in version 1.
ADD_KIND = "ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT 'comparison'"

JSON = "CAST(ifnull(json, '') AS TEXT)"

INTO_RUNS = (
    "INTO runs (id, created, prompt, decoders, models, json, kind, fastest, asked) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


def new_id() -> str:
    """An id for a new run."""
    return secrets.token_hex(6)


class RunStore:
    """Past runs in one SQLite file, which several processes may use at once.

    Every call opens, commits and closes.

    Args:
        path: the file; by default `runs.sqlite` in the folder WORKBENCH_DATA names, or else in the
            user's data directory

    Raises:
        InputError: from every method, in one sentence, if the file cannot be used
    """

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path or data_folder() / "runs.sqlite")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        with self._open() as db:
            # SQLite does not wait if another process does this at the same moment.
            with suppress(sqlite3.OperationalError):
                db.execute("PRAGMA journal_mode = WAL")  # readers and a writer at once
            db.execute(CREATE)
        with self._open() as db:
            # If two processes find a file of version 1, one of them adds the column.
            db.execute("BEGIN IMMEDIATE")
            columns = {column[1] for column in db.execute("PRAGMA table_info(runs)")}
            if "kind" not in columns:
                db.execute(ADD_KIND)
            for name, derived in DERIVED.items():
                if name in columns:
                    continue
                db.execute(f"ALTER TABLE runs ADD COLUMN {name} TEXT")
                for id, text in db.execute(f"SELECT id, {JSON} FROM runs").fetchall():
                    with suppress(InputError):  # a row that is no run is listed without it
                        db.execute(
                            f"UPDATE runs SET {name} = ? WHERE id = ?",
                            (derived(Run.from_json(text)), id),
                        )

    def save(self, run: Run) -> None:
        """Keep a run of this workbench; it replaces one with the same id."""
        with self._open() as db:
            db.execute(f"INSERT OR REPLACE {INTO_RUNS}", _row(run))

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
            search: words
            order: "newest", "oldest" or "title"

        Returns:
            the runs, with titles and models' names cut at SHOWN characters
        """
        if not is_text(search):
            return []
        conditions, values = (["kind = ?"], [kind]) if kind else ([], [])
        for word in search.split():
            conditions.append(
                "instr(lower(prompt || ' ' || decoders || ' ' || models || ' ' || id), lower(?))"
                " > 0"
            )
            values.append(word)
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        query = f"SELECT {ID}, {COLUMNS} FROM runs {where}ORDER BY {ORDERS[order]} LIMIT ?"
        with self._open() as db:
            rows = db.execute(query, (*values, -1 if limit is None else limit)).fetchall()
        return [summary(*row) for row in rows]

    def get(self, id: str) -> Run:
        """A past run, or a recorded one.

        Raises:
            InputError: if there is no such run, or if it is damaged
        """
        if (found := recorded(id)) is not None:
            return found.run
        with self._open() as db:
            row = db.execute(f"SELECT {JSON} FROM runs WHERE {ID} = ?", (id,)).fetchone()
        if row is None:
            raise InputError(f"There is no run {quoted(id)}; it may have been deleted.")
        try:
            return Run.from_json(row[0])
        except InputError as error:
            raise InputError(f"The run {id} cannot be read, only deleted. {error}") from None

    def has(self, id: str) -> bool:
        """Whether there is a run with this id; False also if the file cannot be used."""
        try:
            return self.get(id).id == id
        except InputError:
            return False

    def delete(self, id: str) -> None:
        """Delete a run.

        Raises:
            InputError: if there is no such run
        """
        with self._open() as db:
            if db.execute(f"DELETE FROM runs WHERE {ID} = ?", (id,)).rowcount == 0:
                raise InputError(f"There is no run {quoted(id)}; it may have been deleted.")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
                db.text_factory = lambda text: text.decode(errors="replace")
                yield db
        except (OSError, sqlite3.Error, UnicodeEncodeError) as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> InputError:
        return InputError(
            f"Runs cannot be kept in {self.path} ({error}); set WORKBENCH_DATA to another folder."
        )


def _row(run: Run) -> tuple[str, ...]:
    return (
        run.id, run.created, run.title, json.dumps(run.decoders), run.models, run.dumps(),
        run.kind, _fastest(run), _asked(run),
    )  # fmt: skip


def _fastest(run: Run) -> str:
    found = fastest(run)
    return json.dumps(found) if found else ""


def _asked(run: Run) -> str:
    return asked(run.settings)


# Columns that the list shows beside the title, so that it need not read the runs; "" if there is
# nothing to show. Version 3 of the file has the figures, version 4 the settings too.
DERIVED: dict[str, Callable[[Run], str]] = {"fastest": _fastest, "asked": _asked}


def data_folder() -> Path:
    """The folder where the workbench keeps the user's files."""
    return Path(
        os.environ.get("WORKBENCH_DATA")
        or platformdirs.user_data_dir("decoding-workbench", appauthor=False)
    )
