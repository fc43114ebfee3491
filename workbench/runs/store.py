"""Past runs: the SQLite files that keep runs and experiments, and a dataset of the hub.

Runs and experiments lie in two files of one schema; notes/experiments.md says why. A Space forgets
its disk when it restarts. Where WORKBENCH_RUNS names a dataset, every run is also written into a
folder that `huggingface_hub.CommitScheduler` uploads, and a run that is not on the disk is looked
up there, so links go on working. What could not be uploaded stays in the folder, and the next
attempt takes it along, after a restart of the process too.
"""

import json
import os
import re
import secrets
import sqlite3
import tomllib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import platformdirs
from huggingface_hub import CommitScheduler, HfApi, hf_hub_url
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status
from pydantic import ConfigDict, TypeAdapter, ValidationError

from decoders import InputError
from decoders.errors import first_line, quoted
from workbench.runs.figures import Fastest, fastest
from workbench.runs.record import LARGEST_FILE, Run
from workbench.runs.recorded import recorded
from workbench.studies.prompts import is_text
from workbench.studies.settings import with_seed

VARIABLE = "WORKBENCH_RUNS"
MINUTES = 5.0  # between two uploads
SECONDS = 15.0  # that a visitor waits for the hub
FOLDER = "runs"  # in the dataset
RUN_ID = re.compile(r"[0-9a-f]{1,64}")


class Dataset:
    """A dataset repository that keeps runs.

    It is made, private, if it is not there yet.

    Args:
        name: USER/NAME
        token: a token of the hub that may write to it
        endpoint: the hub's address, by default that of HF_ENDPOINT

    Raises:
        InputError: in one sentence, if it cannot be used
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        token: str | None,
        minutes: float = MINUTES,
        endpoint: str | None = None,
    ):
        self.name, self.folder = name, folder
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise InputError(f"{VARIABLE} must name a dataset as USER/NAME, not {quoted(name)}.")
        if not token:
            raise InputError(
                f"{VARIABLE} names the dataset {name}, which needs the secret HF_TOKEN: a token "
                "that may write to it."
            )
        self.hub = HfApi(token=token, endpoint=endpoint)
        try:
            self.uploads = CommitScheduler(
                repo_id=name,
                repo_type="dataset",
                folder_path=folder,
                path_in_repo=FOLDER,
                every=minutes,
                private=True,
                hf_api=self.hub,
                allow_patterns="*.json",
            )
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise InputError(
                f"The dataset {name} of {VARIABLE} cannot be used ({first_line(error)}); check its "
                "name, and that HF_TOKEN may write to it."
            ) from None

    @classmethod
    def from_environment(
        cls, folder: Path, environ: Mapping[str, str] = os.environ
    ) -> "Dataset | None":
        """The dataset that WORKBENCH_RUNS names, None if it names none."""
        name = environ.get(VARIABLE, "").strip()
        return cls(name, folder, environ.get("HF_TOKEN")) if name else None

    def keep(self, run: Run) -> None:
        """Let a run be uploaded; it replaces one with the same id.

        Raises:
            InputError: if it cannot be written to the folder
        """
        file = self.folder / f"{run.id}.json"
        try:
            with self.uploads.lock:  # no upload lists a file that is half written
                file.write_text(run.dumps(), "utf-8")
        except OSError as error:
            raise InputError(
                f"The run {run.id} cannot wait in {self.folder} for its upload "
                f"({first_line(error)}); make room on the disk."
            ) from None

    def find(self, id: str) -> Run | None:
        """A run of the dataset, None if there is none.

        Raises:
            InputError: if the hub does not answer, or if the run is damaged
        """
        content = fetched(self.hub, self.name, id)
        return None if content is None else Run.from_json(content)

    def forget(self, id: str) -> None:
        """Take a run out of the dataset.

        Raises:
            InputError: if the hub does not answer
        """
        with self.uploads.lock:
            (self.folder / f"{id}.json").unlink(missing_ok=True)
        try:
            self.hub.delete_file(f"{FOLDER}/{id}.json", self.name, repo_type="dataset")
        except EntryNotFoundError:
            pass  # it was not uploaded yet
        except (HfHubHTTPError, HTTPError, OSError) as error:
            raise InputError(
                f"The run {id} stays in the dataset {self.name}, which does not answer "
                f"({first_line(error)}); delete the file {FOLDER}/{id}.json there."
            ) from None


def fetched(hub: HfApi, name: str, id: str) -> bytes | None:
    """The file of a run in a dataset, None if there is none.

    Raises:
        InputError: if the hub does not answer, or if the file is too large
    """
    if not RUN_ID.fullmatch(id):
        return None
    try:  # one request: hf_hub_download would try for half a minute while a visitor waits
        with get_session().stream(
            "GET",
            hf_hub_url(name, f"{FOLDER}/{id}.json", repo_type="dataset", endpoint=hub.endpoint),
            headers=build_hf_headers(token=hub.token),
            follow_redirects=True,
            timeout=SECONDS,
        ) as answer:
            hf_raise_for_status(answer)
            content = b""
            for part in answer.iter_bytes():
                content += part
                if len(content) > LARGEST_FILE:
                    raise InputError(f"The run {id} in the dataset {name} is too large to open.")
    except (EntryNotFoundError, RepositoryNotFoundError):
        return None
    except (HfHubHTTPError, HTTPError, OSError) as error:
        raise InputError(
            f"The run {id} is not on this machine, and the dataset {name} does not answer "
            f"({first_line(error)}); try again later."
        ) from None
    return content


VERSION = 1  # of the numbers of `rows`
# Each further timing adds this to an item's number: under any limit, the third timing of prompt 5
# is number 2000000005.
NEXT_TIMING = 10**9
# The title of a run is in `prompt`, as in version 1. `items` counts those of the cell, all timings
# together; `miscounted` says whether an earlier version took some rows for those of other prompts.
CREATE = """
CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, created TEXT NOT NULL, prompt TEXT NOT NULL,
  decoders TEXT NOT NULL, models TEXT NOT NULL, json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS experiments (id TEXT PRIMARY KEY, created TEXT NOT NULL,
  title TEXT NOT NULL, request TEXT NOT NULL, environment TEXT NOT NULL, total INTEGER NOT NULL,
  stop INTEGER NOT NULL DEFAULT 0, miscounted INTEGER NOT NULL DEFAULT 0);
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
# Version 2 of a run has its kind.
ADD_KIND = "ALTER TABLE runs ADD COLUMN kind TEXT NOT NULL DEFAULT 'comparison'"
# Columns that the list of runs shows beside the title, so that it need not read the runs; "" if
# there is nothing to show. Version 3 has the figures, version 4 the settings too.
DERIVED: dict[str, Callable[[Run], str]] = {
    "fastest": lambda run: json.dumps(first) if (first := fastest(run)) else "",
    "asked": lambda run: with_seed(run.settings),
}
JSON = "CAST(ifnull(json, '') AS TEXT)"


def data_folder() -> Path:
    """The folder where the workbench keeps the user's files."""
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
        """The rows that one statement gives, if any."""
        with self._open() as db:
            return db.execute(statement, values).fetchall()

    @abstractmethod
    def _unusable(self, error: Exception) -> InputError:
        """The error in the words of this store."""


def missing(db: sqlite3.Connection) -> set[str]:
    """What a file of an earlier version lacks: columns of its runs, and the numbers of its rows."""
    columns = {column[1] for column in db.execute("PRAGMA table_info(runs)")}
    numbered = db.execute("PRAGMA user_version").fetchone()[0] == VERSION
    return {"kind", *DERIVED} - columns | (set() if numbered else {"numbers"})


def bring_up_to_date(db: sqlite3.Connection, lacks: set[str]) -> None:
    """Make or update the tables.

    Args:
        lacks: what `missing` found
    """
    old_rows = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone()
    if "numbers" in lacks and old_rows:
        _number_by_prompt(db)
    for statement in CREATE.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")
    if "kind" in lacks:
        db.execute(ADD_KIND)
    for name in [name for name in DERIVED if name in lacks]:
        db.execute(f"ALTER TABLE runs ADD COLUMN {name} TEXT")
        for id, text in db.execute(f"SELECT id, {JSON} FROM runs").fetchall():
            with suppress(InputError):  # a row that is no run is listed without it
                value = DERIVED[name](Run.from_json(text))
                db.execute(f"UPDATE runs SET {name} = ? WHERE id = ?", (value, id))


def _number_by_prompt(db: sqlite3.Connection) -> None:
    """Number the rows of version 0 by the prompt that each row names.

    Version 0 numbered second timings after the last prompt of that run, so a number meant another
    prompt under another limit.
    """
    db.execute("ALTER TABLE cells ADD COLUMN timings INTEGER NOT NULL DEFAULT 1")
    db.execute("ALTER TABLE experiments ADD COLUMN miscounted INTEGER NOT NULL DEFAULT 0")
    _add_timings(db)
    places = _places(db)
    _recount(db, places)
    times: defaultdict[tuple[str, int], int] = defaultdict(int)
    for (block, item), place in sorted(places.items()):
        number = NEXT_TIMING * times[block, place] + place
        times[block, place] += 1
        if number != item:
            # Negative until all are moved, because another row may still have this number.
            db.execute(
                "UPDATE rows SET item = ? WHERE block = ? AND item = ?", (-1 - number, block, item)
            )
    db.execute("UPDATE rows SET item = -1 - item WHERE item < 0")
    db.execute("DELETE FROM claims")  # by the old numbers


def _add_timings(db: sqlite3.Connection) -> None:
    plans = db.execute(f"SELECT id, {_within('request', '$.plan')} FROM experiments")
    for id, plan in plans.fetchall():
        # A damaged plan can be neither run nor reported.
        with suppress(
            ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError
        ):
            for number, part in enumerate(tomllib.loads(plan)["part"], 1):
                name, timings = part.get("name", f"part {number}"), int(part.get("timings", 1))
                db.execute(
                    "UPDATE cells SET timings = ? WHERE experiment = ? AND part = ? "
                    "AND items % ? = 0",
                    (timings, id, str(name), timings),
                )


def _recount(db: sqlite3.Connection, places: dict[tuple[str, int], int]) -> None:
    """Correct the totals: where parts shared work, version 0 counted only the last part's items."""
    counted: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    wrong = set()
    for id, block, items, timings in db.execute(
        "SELECT DISTINCT experiment, block, items, timings FROM cells"
    ):
        for item in range(items):
            again, place = divmod(item, items // timings)
            counted[id].add((block, NEXT_TIMING * again + place))
            if places.get((block, item), place) != place:
                wrong.add(id)
    for id, total in db.execute("SELECT id, total FROM experiments").fetchall():
        count = len(counted[id])
        db.execute(
            "UPDATE experiments SET total = ?, miscounted = ? WHERE id = ?",
            (count, id in wrong or count != total, id),
        )


def _places(db: sqlite3.Connection) -> dict[tuple[str, int], int]:
    """By block and old number, the place of the item's prompts in their set, as its rows say."""
    sizes = dict(db.execute(f"SELECT block, {_within('asked', '$.batch_size')} FROM cells"))
    prompts = db.execute(
        f"SELECT block, item, max({_within('json', '$.outputs[0].prompt')}) FROM rows "
        "GROUP BY block, item"
    )
    known = range(NEXT_TIMING)
    return {
        # Whether text lies in a range is looked up number by number, in half a minute.
        (b, i): p // (sizes.get(b) or 1) if isinstance(p, int) and p in known else i
        for b, i, p in prompts
    }


def _within(column: str, path: str) -> str:
    """SQL for a value in a column of JSON; NULL if the JSON is damaged."""
    return f"CASE WHEN json_valid({column}) THEN json_extract({column}, '{path}') END"


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
    settings: str,
) -> RunSummary:  # fmt: skip
    try:
        decoders_listed, fastest = _LISTED.validate_json(f"[{decoders}, {figures or 'null'}]")
    except ValidationError:
        says = f"This row is damaged and can only be deleted: {id}"
        return RunSummary(id, created, DAMAGED, says, [], models)
    return RunSummary(id, created, kind, title, decoders_listed, models, fastest, settings)
