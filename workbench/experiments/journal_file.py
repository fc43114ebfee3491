"""The journal's file: where it lies, how it is opened, and what to do if it cannot be used."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from decoders import InputError
from workbench.experiments import schema
from workbench.runs.store import data_folder


class JournalFile:
    """The SQLite file of experiments, which several processes may use at once.

    Args:
        path: the file; by default `experiments.sqlite` beside the past runs
        patience: seconds to wait for a file that another process holds
        now: returns the present time in seconds

    Raises:
        InputError: from every method, in one sentence, if the file cannot be used; everything
            committed stays
    """

    def __init__(
        self,
        path: str | Path | None = None,
        patience: float = 30.0,
        now: Callable[[], float] = time.time,
    ):
        self.path = Path(path or data_folder() / "experiments.sqlite")
        self._patience, self._now = patience, now
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(error) from None
        with self._open() as db:
            db.execute("PRAGMA journal_mode = WAL")
            schema.prepare(db)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=self._patience)) as db, db:
                # A row may be damaged in any way.
                db.text_factory = partial(str, encoding="utf-8", errors="replace")
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
            f"Experiments cannot be kept in {self.path} ({text}): {fix}. Everything committed "
            "before is kept."
        )


def date() -> str:
    """The present time, UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
