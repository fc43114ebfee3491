"""A run: one finished comparison as plain data, and the file that keeps runs.

The JSON of a run is these dataclasses field by field; the page, the exports, the terminal and the `/compare` endpoint read nothing else.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError

from decoders import InputError
from workbench.runs.record import Alternative, GreedyCheck, RoundRecord, RunResult, TokenRecord, TrialRecord

__all__ = [
    "Alternative", "GreedyCheck", "RoundRecord", "Run", "RunResult", "RunStore", "RunSummary", "TokenRecord", "TrialRecord",
    "data_folder",
]  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One comparison.

    id            unique, of the letters 0-9a-f;   created  UTC, ISO 8601
    prompt        as typed, before any chat template
    settings      what `workbench.settings.Settings.to_json` gives: shared settings, `decoders`, and each decoder's own under its name
    environment   device, dtype, versions and models it ran on
    results       in the order they ran: greedy first where chosen, all decoders with the first seed, then with the next
    cancelled     whether it was stopped before its end
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    id: Annotated[str, StringConstraints(pattern="^[0-9a-f]{1,64}$")]
    created: str
    prompt: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    results: list[RunResult]
    cancelled: bool = False
    format: Literal["decoding-workbench run"] = "decoding-workbench run"
    version: Literal[1] = 1

    @property
    def decoders(self) -> list[str]:
        """Those that have a result, in the order they ran."""
        return list(dict.fromkeys(r.decoder for r in self.results))

    @property
    def models(self) -> str:
        """The pair in one line."""
        models = [self.environment.get(role) for role in ("target", "draft")]
        return " + ".join(str(m["name"]) for m in models if isinstance(m, dict) and "name" in m)

    def to_json(self) -> dict[str, Any]:
        """The run as plain data for a strict JSON file: no NaN, no Infinity."""
        return _RUN.dump_python(self, mode="json")

    @staticmethod
    def from_json(text: str | bytes) -> "Run":
        """Read a run back. Raises InputError, in one sentence, for a file that is broken or not a run."""
        try:
            return _RUN.validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"]).removeprefix(".")
            raise InputError(f"This is not a run of the workbench: {place or 'the file'}: {first['msg']}.") from None


_RUN = TypeAdapter(Run)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A line in the list of past runs."""

    id: str
    created: str
    prompt: str
    decoders: list[str]
    models: str


class RunStore:
    """Past runs in one SQLite file, which several processes may use at once. Every call opens, commits and closes.

    path  the file; default `runs.sqlite` in the folder WORKBENCH_DATA names, or else in the user's data directory
    Raises InputError where the file cannot be made or is not of this version.
    """

    def __init__(self, path: str | Path | None = None):
        self.path = Path(path or data_folder() / "runs.sqlite")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as db:
                db.execute("PRAGMA journal_mode = WAL")  # readers and a writer at once
                db.execute(
                    "CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, created TEXT NOT NULL, prompt TEXT NOT NULL, "
                    "decoders TEXT NOT NULL, models TEXT NOT NULL, json TEXT NOT NULL)"
                )
        except (OSError, sqlite3.Error) as error:
            raise InputError(
                f"Runs cannot be kept in {self.path} ({error}); set WORKBENCH_DATA to another folder."
            ) from None

    def save(self, run: Run) -> None:
        """Keep a run; one with the same id is replaced."""
        row = (run.id, run.created, run.prompt, json.dumps(run.decoders), run.models, _RUN.dump_json(run).decode())
        with self._open() as db:
            db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)", row)

    def list(self, limit: int = 100) -> list[RunSummary]:
        """The latest runs, newest first."""
        columns = "SELECT id, created, prompt, decoders, models FROM runs ORDER BY created DESC, rowid DESC LIMIT ?"
        with self._open() as db:
            rows = db.execute(columns, (limit,)).fetchall()
        return [
            RunSummary(id, created, prompt, json.loads(names), models) for id, created, prompt, names, models in rows
        ]

    def get(self, id: str) -> Run:
        """Raises InputError where there is no such run."""
        with self._open() as db:
            row = db.execute("SELECT json FROM runs WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise InputError(f"There is no run {id!r}; it may have been deleted.")
        return Run.from_json(row[0])

    def delete(self, id: str) -> None:
        """Raises InputError where there is no such run."""
        with self._open() as db:
            if db.execute("DELETE FROM runs WHERE id = ?", (id,)).rowcount == 0:
                raise InputError(f"There is no run {id!r}; it may have been deleted.")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            yield db


def data_folder() -> Path:
    """Where the workbench keeps what is the user's."""
    return Path(os.environ.get("WORKBENCH_DATA") or platformdirs.user_data_dir("decoding-workbench", appauthor=False))
