"""The journal keeps experiments with their rows, each as soon as it is finished.

Only the driver writes rows.
"""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from workbench.experiments.cells import Block, merged
from workbench.experiments.claims import Claims, alive
from workbench.experiments.rows import Entry, Kept, Row
from workbench.runs.database import NEXT_TIMING
from workbench.runs.store import SHOWN
from workbench.runs.values import date

# An experiment's rows, without rows of the same cells that belong to a higher limit or to more
# timings, and without rows whose item is damaged.
_ASKED = (
    f"WHERE typeof(r.item) = 'integer' AND r.item / {NEXT_TIMING} < c.timings "
    f"AND r.item % {NEXT_TIMING} < c.items / c.timings"
)
_CELLS = "FROM (SELECT {} FROM cells WHERE experiment = ?) AS c JOIN rows AS r ON "
ASKED = f"{_CELLS.format('*')}r.cell = c.cell {_ASKED}"
# Block and cell of the rows whose number is damaged.
UNNUMBERED = (
    "SELECT r.block, r.cell FROM cells AS c JOIN rows AS r ON r.cell = c.cell "
    "WHERE c.experiment = ? AND typeof(r.item) <> 'integer'"
)
# The rows whose item is done; a row without a block belongs to an item that is run again. SQLite
# needs only the index of rows for this.
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
            with suppress(InputError):  # a new one
                if self._read(db, id) is None:
                    db.execute("DELETE FROM experiments WHERE id = ?", (id,))
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
        self.kept(id)  # finds damaged rows, so that they are run again

    def experiments(self, limit: int = 50) -> list[Progress]:
        """The progress of the newest experiments.

        Args:
            limit: the most experiments
        """
        # A row whose id is damaged belongs to no experiment: its plan makes another one.
        ids = self._rows(
            "SELECT id FROM experiments WHERE typeof(id) = 'text' AND length(id) < 100 "
            "AND id NOT GLOB '*[^0-9a-z]*' ORDER BY created DESC, rowid DESC LIMIT ?",
            limit,
        )
        return [self.progress(id) for (id,) in ids]

    def experiment(self, id: str) -> Entry:
        """The experiment's row.

        Raises:
            InputError: if there is no such experiment, or if its row is damaged
        """
        with self._open() as db:
            found = self._read(db, id)
        if found is None:
            raise self._damaged(id)
        return found

    def _read(self, db: sqlite3.Connection, id: str) -> Entry | None:
        """The row of an experiment, None if it is damaged. Raises InputError if there is none."""
        columns = ", ".join(field.name for field in fields(Entry))
        row = db.execute(f"SELECT {columns} FROM experiments WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise InputError(
                f"There is no experiment {quoted(id)}; `experiment --list` shows past experiments."
            )
        return Entry.read(row)

    def _damaged(self, id: str) -> InputError:
        return InputError(
            f"The request of experiment {id} is damaged in {self.path}; run its plan again: its "
            "finished rows are kept."
        )

    def progress(self, id: str) -> Progress:
        """The progress of an experiment; a damaged one has only a title that says so.

        Raises:
            InputError: if there is no such experiment
        """
        with self._open() as db:
            entry = self._read(db, id)
            if entry is None:
                return Progress(id, "a damaged experiment", "", 0, 0, 0, False, False, None, "")
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
            id, entry.title[:SHOWN], entry.created, done, entry.total, failed, bool(at_work),
            entry.stop, min((eta for eta, _ in at_work if eta is not None), default=None),
            at_work[0][1] if at_work else "", entry.miscounted,
        )  # fmt: skip

    def ask_to_stop(self, id: str) -> None:
        """Ask all drivers of an experiment to stop after the item at work."""
        self._rows("UPDATE experiments SET stop = 1 WHERE id = ?", id)

    def asked_to_stop(self, id: str) -> bool:
        """Whether the drivers of an experiment have been asked to stop."""
        return any(stop for (stop,) in self._rows("SELECT stop FROM experiments WHERE id = ?", id))

    def kept(self, id: str) -> list[Kept]:
        """The experiment's cells in order, each with its finished rows.

        From now on, items with a damaged row count as not done.

        Raises:
            InputError: if a cell is damaged; running the plan again makes the cells anew
        """
        with self._open() as db:
            query = (
                "SELECT part, cell, label, block, items, asked FROM cells WHERE experiment = ? "
                "ORDER BY place"
            )
            try:
                kept = [Kept.read(*cell) for cell in db.execute(query, (id,))]
            except (ValueError, TypeError):  # a text that is no JSON, or no text
                raise self._damaged(id) from None
            found, damaged = {(one.part, one.cell): one for one in kept}, []
            query = f"SELECT c.part, r.cell, r.item, CAST(r.json AS BLOB) {ASKED} ORDER BY r.item"
            for part, cell, item, text in db.execute(query, (id,)):
                one = found[part, cell]
                try:
                    prompt = item % NEXT_TIMING * one.asked["batch_size"]
                    one.rows[item] = Row.loads(cell, item, text, one.asked, prompt)
                except ValueError:
                    one.damaged.append(item)
                    damaged.append((item, cell, item, text))
            # An item whose rows have no block is run again; its sound rows are shown until then.
            # A row whose number is damaged may be of any item of its block that has no row of this
            # cell.
            same = "SELECT block FROM rows WHERE cell = ? AND item = ? AND CAST(json AS BLOB) = ?"
            again = "UPDATE rows SET block = '' WHERE block"
            lost = f"{again} = ? AND item NOT IN (SELECT item FROM rows WHERE cell = ?)"
            db.executemany(lost, db.execute(UNNUMBERED, (id,)).fetchall())
            for item, cell, _, text in damaged:
                for (block,) in db.execute(same, (cell, item, text)).fetchall():
                    db.execute(lost, (block, cell))
            db.executemany(f"{again} = ({same}) AND item = ?", [(*d[1:], d[0]) for d in damaged])
        return kept
