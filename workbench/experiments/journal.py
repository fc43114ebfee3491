"""The journal keeps experiments with their rows, each as soon as it is finished.

Only the driver writes rows.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from workbench.experiments.cells import Block, merged
from workbench.experiments.claims import Claims, alive
from workbench.experiments.request import Request
from workbench.experiments.rows import Entry, Kept, Row
from workbench.runs.database import NEXT_TIMING
from workbench.runs.store import SHOWN
from workbench.runs.values import date

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
class Progress:
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
        miscounted: whether an earlier version took rows of other prompts for some of its items
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
    miscounted: bool = False


class Journal(Claims):
    """The experiments of one file; its arguments and the methods that keep rows are of `Claims`."""

    def begin(
        self,
        id: str,
        title: str,
        request: dict[str, Any],
        environment: dict[str, Any],
        blocks: Sequence[Block],
    ) -> None:
        """Add an experiment, or continue it: its report then follows the present plan.

        Args:
            id: the experiment's id
            title: the plan's title
            request: the request, as its `to_json` has it
            environment: workers, pairs, code and sets that it runs on
            blocks: the plan's blocks
        """
        total = sum(len(block.items) for block in merged(blocks))
        with self._open() as db:
            db.execute(
                "INSERT OR IGNORE INTO experiments (id, created, title, request, environment, "
                "total) VALUES (?, ?, ?, ?, ?, ?)",
                (id, date(), title, json.dumps(request), json.dumps(environment), total),
            )
            db.execute(
                "UPDATE experiments SET title = ?, request = ?, total = ?, stop = 0 WHERE id = ?",
                (title, json.dumps(request), total, id),
            )
            db.execute("DELETE FROM cells WHERE experiment = ?", (id,))
            cells = [
                (block.part, cell, label, block.id, len(block.items), json.dumps(asked.to_json()),
                 1 + max(block.items) // NEXT_TIMING)
                for block in blocks
                for cell, label, asked in zip(block.ids, block.labels, block.cells, strict=True)
            ]  # fmt: skip
            db.executemany(
                "INSERT OR IGNORE INTO cells (experiment, place, part, cell, label, block, items, "
                "asked, timings) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                ((id, place, *cell) for place, cell in enumerate(cells)),
            )

    def experiments(self, limit: int = 50) -> list[Progress]:
        """The progress of the newest experiments.

        Args:
            limit: the most experiments
        """
        ids = self._rows(
            "SELECT id FROM experiments ORDER BY created DESC, rowid DESC LIMIT ?", limit
        )
        return [self.progress(id) for (id,) in ids]

    def experiment(self, id: str) -> Entry:
        """What an experiment was asked for, and what it runs on.

        Raises:
            InputError: if there is no such experiment
        """
        created, request, environment = self._read(id, "created", "request", "environment")
        with self._reading():
            asked = Request.from_json(json.loads(request))
            return Entry(created, asked, json.loads(environment))

    def _read(self, id: str, *columns: str) -> Sequence[Any]:
        """These columns of an experiment. Raises InputError if there is none."""
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

    def progress(self, id: str) -> Progress:
        """The progress of an experiment.

        Raises:
            InputError: if there is no such experiment
        """
        title, created, total, stop, miscounted = self._read(
            id, "title", "created", "total", "stop", "miscounted"
        )
        with self._open() as db:
            items = f"SELECT DISTINCT r.block, r.item {DONE}"
            errors = f'SELECT DISTINCT r.cell, r.item {DONE} AND json LIKE \'%"error":"%\''
            counts = f"SELECT (SELECT count(*) FROM ({items})), (SELECT count(*) FROM ({errors}))"
            done, failed = db.execute(counts, (id, id)).fetchone()
            drivers = db.execute(
                "SELECT owner, beat, eta, doing FROM drivers WHERE experiment = ?", (id,)
            ).fetchall()
        at_work = [
            (eta, doing) for owner, beat, eta, doing in drivers if alive(owner, beat, self._now())
        ]
        return Progress(
            id, title[:SHOWN], created, done, total, failed, bool(at_work),
            bool(stop), min((eta for eta, _ in at_work if eta is not None), default=None),
            at_work[0][1] if at_work else "", bool(miscounted),
        )  # fmt: skip

    def ask_to_stop(self, id: str) -> None:
        """Ask all drivers of an experiment to stop after the item at work."""
        self._rows("UPDATE experiments SET stop = 1 WHERE id = ?", id)

    def asked_to_stop(self, id: str) -> bool:
        """Whether the drivers of an experiment have been asked to stop."""
        return any(stop for (stop,) in self._rows("SELECT stop FROM experiments WHERE id = ?", id))

    def kept(self, id: str) -> list[Kept]:
        """The experiment's cells in order, each with its finished rows."""
        with self._open() as db, self._reading():
            query = (
                "SELECT part, cell, label, block, items, asked FROM cells WHERE experiment = ? "
                "ORDER BY place"
            )
            kept = [
                Kept(part, cell, label, block, items, json.loads(asked), {})
                for part, cell, label, block, items, asked in db.execute(query, (id,))
            ]
            of = {(one.part, one.cell): one for one in kept}
            query = f"SELECT c.part, r.cell, r.item, r.json {ASKED} ORDER BY r.item"
            for part, cell, item, text in db.execute(query, (id,)):
                one = of[part, cell]
                one.rows[item] = Row.loads(cell, item, text, one.asked)
        return kept
