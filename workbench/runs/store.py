"""Past runs: the file that keeps them, and the lines in their list."""

import json
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from decoders import InputError
from decoders.errors import quoted
from workbench.runs.database import DERIVED, JSON, Database
from workbench.runs.dataset import Dataset
from workbench.runs.ranking import Fastest
from workbench.runs.record import Run
from workbench.runs.recorded import recorded
from workbench.studies.prompts import is_text

Order = Literal["newest", "oldest", "title"]
ORDERS = {
    "newest": "created DESC, rowid DESC",
    "oldest": "created, rowid",
    "title": "prompt COLLATE NOCASE, created DESC",
}
INTO_RUNS = (
    "INTO runs (id, created, prompt, decoders, models, json, kind, fastest, asked) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# Characters that a list reads of a title, of the models' names and of the sampling settings.
SHOWN = 200
# A row may be damaged in any way: every column is cut before it is read, and taken as text. A row
# without a valid id is named by its place.
READ = {
    "created": 40, "kind": 40, "prompt": SHOWN, "decoders": 10_000, "models": SHOWN,
    "fastest": 1000, "asked": SHOWN,
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
        fastest: the fastest decoder
        asked: the sampling settings, in words
    """

    id: str
    created: str
    kind: str
    title: str
    decoders: list[str]
    models: str
    fastest: Fastest | None = None
    asked: str = ""


_LISTED = TypeAdapter(
    tuple[list[str], Fastest | None], config=ConfigDict(strict=True, allow_inf_nan=False)
)


def new_id() -> str:
    """An id for a new run."""
    return secrets.token_hex(6)


class RunStore(Database):
    """Past runs in one file; its arguments are those of `Database`.

    Attributes:
        dataset: where runs are kept too, if anywhere; those that the file lacks are found there
    """

    FILE = "runs.sqlite"
    dataset: Dataset | None = None

    def save(self, run: Run) -> None:
        """Keep a run of this workbench; it replaces one with the same id."""
        self._rows(f"INSERT OR REPLACE {INTO_RUNS}", *_row(run))
        if self.dataset:
            self.dataset.keep(run)

    def add(self, run: Run) -> Run:
        """Keep a run that comes from outside.

        It never replaces another: if there is a run with its id, or a recorded one, it gets a new
        id.

        Args:
            run: the run
        """
        if recorded(run.id) is not None:
            run = replace(run, id=new_id())
        with self._open() as db:
            if db.execute(f"INSERT OR IGNORE {INTO_RUNS}", _row(run)).rowcount == 0:
                run = replace(run, id=new_id())
                db.execute(f"INSERT {INTO_RUNS}", _row(run))
        if self.dataset:
            self.dataset.keep(run)
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
        if (found := recorded(id)) is not None:
            return found.run
        rows = self._rows(f"SELECT {JSON} FROM runs WHERE {ID} = ? LIMIT 1", id)
        if not rows:
            if self.dataset and (run := self.dataset.find(id)):
                return run
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
        """Delete a run.

        Raises:
            InputError: if there is no such run
        """
        with self._open() as db:
            if db.execute(f"DELETE FROM runs WHERE {ID} = ?", (id,)).rowcount == 0:
                raise InputError(f"There is no run {quoted(id)}; it may have been deleted.")
        if self.dataset:
            self.dataset.forget(id)

    def _unusable(self, error: Exception) -> InputError:
        return InputError(
            f"Runs cannot be kept in {self.path} ({error}); set WORKBENCH_DATA to another folder."
        )


def _row(run: Run) -> tuple[str, ...]:
    return (
        run.id, run.created, run.title, json.dumps(run.decoders), run.models, run.dumps(),
        run.kind, *(derived(run) for derived in DERIVED.values()),
    )  # fmt: skip


def _summary(
    id: str, created: str, kind: str, title: str, decoders: str, models: str, figures: str,
    drawn: str,
) -> RunSummary:  # fmt: skip
    try:
        decoders_listed, fastest = _LISTED.validate_json(f"[{decoders}, {figures or 'null'}]")
    except ValidationError:
        says = f"This row is damaged and can only be deleted: {id}"
        return RunSummary(id, created, DAMAGED, says, [], models)
    return RunSummary(id, created, kind, title, decoders_listed, models, fastest, drawn)
