"""The journal keeps experiments with their rows, each as soon as it is finished.

Drivers claim items, and only a driver that holds the claim commits their rows.
"""

import json
import os
import platform
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from decoders import InputError, catalog
from decoders.errors import quoted
from workbench.experiments.cells import Cell, CellBlock
from workbench.experiments.plan import ExperimentRequest
from workbench.runs.record import Energy, Result, Sample, date
from workbench.runs.store import NEXT_TIMING, SHOWN, TOO_OLD, Database
from workbench.studies.settings import changed


def failed(cell: Cell, item: int, prompts: Iterable[int], error: str) -> Result:
    seed = cell.settings.seed + item % NEXT_TIMING * cell.batch_size
    return Result(
        cell.method.name, 0, seed, {}, Energy(None, UNMETERED), [Sample(n, 0) for n in prompts],
        batch_size=cell.batch_size, scheme=cell.scheme, error=error,
    )  # fmt: skip


UNMETERED = "not measured"
_RESULT = TypeAdapter(Result)


@dataclass(frozen=True, slots=True)
class CellRows:
    """A cell of an experiment with its rows.

    Attributes:
        part: name of its part of the plan
        cell: its id
        label: its label
        block: id of its block
        items: how many items it has, all timings together
        spec: its settings, as `Cell.to_json` has them
        rows: its results by the number of their item; samples name prompts by their numbers in
            the set
    """

    part: str
    cell: str
    label: str
    block: str
    items: int
    spec: dict[str, Any]
    rows: dict[int, Result]

    @property
    def unsaid(self) -> str:
        """Its settings other than the library's defaults that its label does not say, or ""."""
        settings = self.spec["settings"]
        try:
            own = changed(catalog[self.spec["decoder"]](**settings))
        except (InputError, TypeError):  # of another version
            own = settings
        name, said = self.label.split(", ")[0], self.label.replace(", ", " ").split()
        words = [
            f"{key}={'-'.join(map(str, x)) if isinstance(x, list) else x}" for key, x in own.items()
        ]
        others = [word for word in words if word not in said]
        return " ".join([name, *others]) if others else ""


# A driver whose last beat is older than this counts as gone.
STALE_SECONDS = 60.0
RELEASE = "DELETE FROM claims WHERE block = ? AND item = ? AND owner = ?"


def new_owner() -> str:
    pid = os.getpid()
    return f"{platform.node()}|{pid}|{started_at(pid)}|{time.monotonic_ns()}"


def started_at(pid: int) -> str:
    """When a process of this machine began, "" if there is none: process ids are reused."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if state in "ZX" else fields[18]
    except OSError:  # the process is gone, or this system has no /proc to ask
        return "" if Path("/proc/self").exists() else "?"


def alive(owner: str, beat: float, now: float) -> bool:
    """Whether an owner is alive: its last beat is recent, and a process of this machine still runs.

    Args:
        owner: its name, from `new_owner`
        beat: the time of its last beat, in seconds
        now: the present time, in seconds
    """
    host, pid, started, _ = owner.split("|")
    here = host == platform.node()
    return now - beat <= STALE_SECONDS and (not here or started_at(int(pid)) == started)


# An experiment's rows, without rows of the same cells that belong to a higher limit or to more
# timings.
_ASKED = (
    f"WHERE r.item / {NEXT_TIMING} < c.timings AND r.item % {NEXT_TIMING} < c.items / c.timings"
)
_CELLS = "FROM (SELECT {} FROM cells WHERE experiment = ?) AS c JOIN rows AS r ON "
ASKED = f"{_CELLS.format('*')}r.cell = c.cell {_ASKED}"
# The rows whose item is done. SQLite needs only the index of rows for this.
DONE = f"{_CELLS.format('DISTINCT block, items, timings')}r.block = c.block {_ASKED}"


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """The progress of an experiment.

    Attributes:
        id: the experiment's id
        title: the plan's title, cut at SHOWN characters
        created: UTC, ISO 8601
        done: items that are finished
        total: all items
        failed: rows with an error
        running: whether a driver is alive
        stopping: whether it has been asked to stop
        eta: seconds left, None if not known
        doing: one line about the item that is decoded now
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


# What to do about an error, by words of its message.
FIXES = {
    "locked|busy": "another program holds it; close that program, then resume",
    "full|No space left": "the disk is full; free some space, then resume",
    f"damaged|malformed|not a database|{TOO_OLD}": "move it away, and run the plans again",
    "": "set WORKBENCH_DATA to another folder",
}


class Journal(Database):
    """The experiments of one file; its arguments are those of `Database`."""

    FILE = "experiments.sqlite"

    def claim(self, block: CellBlock, owner: str) -> int | None:
        """Claim an item of the block that is neither done nor claimed by a living driver.

        Returns:
            the item's number, None if there is none
        """
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            done = db.execute("SELECT DISTINCT item FROM rows WHERE block = ?", (block.id,))
            claims = db.execute("SELECT item, owner, beat FROM claims WHERE block = ?", (block.id,))
            gone = {i for i, owner, beat in claims if alive(owner, beat, time.time())}
            gone |= {item for (item,) in done}
            item = next((item for item in block.items if item not in gone), None)
            if item is not None:
                claim = (block.id, item, owner, time.time())
                db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", claim)
        return item

    def left(self, blocks: Iterable[CellBlock]) -> set[tuple[str, int]]:
        """Block and number of the items without rows, claimed or not; parts may share some."""
        query = "SELECT DISTINCT block, item FROM rows WHERE block = ?"
        left = {(block.id, item) for block in blocks for item in block.items}
        with self._open() as db:
            for id in {id for id, _ in left}:
                left.difference_update(db.execute(query, (id,)))
        return left

    def commit(self, block: CellBlock, item: int, owner: str, results: Sequence[Result]) -> bool:
        """Keep all of an item's results, or none.

        Args:
            item: the item's number
            results: one for each cell of the block

        Returns:
            False if another process took the claim meanwhile; then none is kept
        """
        rows = []
        for cell, result in zip(block.ids, results, strict=True):
            plain = _RESULT.dump_python(result, mode="json", exclude_defaults=True)
            text = json.dumps({"result": plain}, separators=(",", ":"))
            rows.append((cell, item, block.id, date(), text))
        with self._open() as db:
            claimed = db.execute(RELEASE, (block.id, item, owner)).rowcount > 0
            if claimed:
                db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", rows)
            return claimed

    def release(self, block: CellBlock, item: int, owner: str) -> None:
        with self._open() as db:
            db.execute(RELEASE, (block.id, item, owner))

    def beat(self, id: str, owner: str, eta: float | None, doing: str) -> None:
        with self._open() as db:
            db.execute("UPDATE claims SET beat = ? WHERE owner = ?", (time.time(), owner))
            values = (id, owner, time.time(), eta, doing)
            db.execute("INSERT OR REPLACE INTO drivers VALUES (?, ?, ?, ?, ?)", values)

    def leave(self, owner: str) -> None:
        with self._open() as db:
            for table in ("claims", "drivers"):
                db.execute(f"DELETE FROM {table} WHERE owner = ?", (owner,))

    def begin(
        self,
        id: str,
        title: str,
        request: dict[str, Any],
        environment: dict[str, Any],
        blocks: Sequence[CellBlock],
    ) -> None:
        """Add an experiment, or continue it: its report then follows the present plan.

        Args:
            id: the experiment's id
            title: the plan's title
            request: the request, as its `to_json` has it
            environment: workers, pairs, code and sets that it runs on
            blocks: the plan's blocks
        """
        total = len({(block.id, item) for block in blocks for item in block.items})
        with self._open() as db:
            db.execute(
                "INSERT INTO experiments (id, created, title, request, environment, total) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET title = excluded.title, "
                "request = excluded.request, total = excluded.total, stop = 0",
                (id, date(), title, json.dumps(request), json.dumps(environment), total),
            )
            db.execute("DELETE FROM cells WHERE experiment = ?", (id,))
            cells = [
                (block.part, cell, label, block.id, len(block.items), json.dumps(spec.to_json()),
                 1 + max(block.items) // NEXT_TIMING)
                for block in blocks
                for cell, label, spec in zip(block.ids, block.labels, block.cells, strict=True)
            ]  # fmt: skip
            db.executemany(
                "INSERT OR IGNORE INTO cells (experiment, place, part, cell, label, block, items, "
                "asked, timings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((id, place, *cell) for place, cell in enumerate(cells)),
            )

    def experiments(self, limit: int = 50) -> list[ExperimentProgress]:
        ids = self._rows(
            "SELECT id FROM experiments ORDER BY created DESC, rowid DESC LIMIT ?", limit
        )
        return [self.progress(id) for (id,) in ids]

    def experiment(self, id: str) -> tuple[ExperimentRequest, dict[str, Any]]:
        """The request, and the workers, pairs, code and sets that it runs on.

        Raises:
            InputError: if there is no such experiment
        """
        request, environment = self._read(id, "request", "environment")
        with self._reading():
            return ExperimentRequest.from_json(json.loads(request)), json.loads(environment)

    def _read(self, id: str, *columns: str) -> Sequence[Any]:
        for row in self._rows(f"SELECT {', '.join(columns)} FROM experiments WHERE id = ?", id):
            return row
        raise InputError(
            f"There is no experiment {quoted(id)}; `experiment --list` shows past experiments."
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Say in one sentence that the file holds what this program did not write."""
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise self._unusable(ValueError("it is damaged")) from None

    def progress(self, id: str) -> ExperimentProgress:
        """The progress of an experiment.

        Raises:
            InputError: if there is no such experiment
        """
        title, created, total, stop = self._read(id, "title", "created", "total", "stop")
        with self._open() as db:
            items = f"SELECT DISTINCT r.block, r.item {DONE}"
            errors = f'SELECT DISTINCT r.cell, r.item {DONE} AND json LIKE \'%"error":"%\''
            counts = f"SELECT (SELECT count(*) FROM ({items})), (SELECT count(*) FROM ({errors}))"
            done, failed = db.execute(counts, (id, id)).fetchone()
            drivers = db.execute(
                "SELECT owner, beat, eta, doing FROM drivers WHERE experiment = ?", (id,)
            ).fetchall()
        at_work = [
            (eta, doing) for owner, beat, eta, doing in drivers if alive(owner, beat, time.time())
        ]
        return ExperimentProgress(
            id, title[:SHOWN], created, done, total, failed, bool(at_work),
            bool(stop), min((eta for eta, _ in at_work if eta is not None), default=None),
            at_work[0][1] if at_work else "",
        )  # fmt: skip

    def ask_to_stop(self, id: str) -> None:
        self._rows("UPDATE experiments SET stop = 1 WHERE id = ?", id)

    def cells(self, id: str) -> list[CellRows]:
        with self._open() as db, self._reading():
            query = (
                "SELECT part, cell, label, block, items, asked FROM cells WHERE experiment = ? "
                "ORDER BY place"
            )
            cells = [
                CellRows(part, cell, label, block, items, json.loads(spec), {})
                for part, cell, label, block, items, spec in db.execute(query, (id,))
            ]
            of = {(one.part, one.cell): one for one in cells}
            query = f"SELECT c.part, r.cell, r.item, r.json {ASKED} ORDER BY r.item"
            for part, cell, item, text in db.execute(query, (id,)):
                of[part, cell].rows[item] = _RESULT.validate_python(json.loads(text)["result"])
        return cells

    def _unusable(self, error: Exception) -> InputError:
        fix = next(fix for words, fix in FIXES.items() if re.search(words, str(error)))
        return InputError(
            f"Experiments cannot be kept in {self.path} ({error}): {fix}. Everything committed "
            "before is kept."
        )
