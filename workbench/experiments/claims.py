"""The work on experiments: which driver is at work on which item, and the rows that it commits."""

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from sqlite3 import Connection

from decoders import InputError
from workbench.experiments.cells import Block
from workbench.experiments.rows import Row
from workbench.runs.database import Database
from workbench.runs.values import date

# A driver whose last beat is older than this counts as gone.
STALE_SECONDS = 60.0
RELEASE = "DELETE FROM claims WHERE block = ? AND item = ? AND owner = ?"


def new_owner(number: int = 0) -> str:
    """A unique name for a driver of this process."""
    pid = os.getpid()
    return f"{platform.node()}|{pid}|{started_at(pid)}|{number}-{time.monotonic_ns()}"


def started_at(pid: int) -> str:
    """When a process of this machine began, "" if there is none: process ids are reused."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if state in "ZX" else fields[18]
    except OSError:
        pass
    try:  # without /proc, only its existence is known
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return ""
    return "?"


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


class Claims(Database):
    """The part of the journal that drivers write.

    Args:
        path: as of `Database`
        patience: as of `Database`
        now: returns the present time in seconds
    """

    FILE = "experiments.sqlite"

    def __init__(
        self,
        path: str | Path | None = None,
        patience: float = 30.0,
        now: Callable[[], float] = time.time,
    ):
        super().__init__(path, patience)
        self._now = now

    def claim(self, block: Block, owner: str) -> int | None:
        """Claim an item of the block that is neither done nor claimed by a living driver.

        Args:
            block: the block
            owner: name of the driver

        Returns:
            the item's number, None if there is none
        """
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            done = db.execute("SELECT DISTINCT item FROM rows WHERE block = ?", (block.id,))
            gone = {item for (item,) in done} | self._claimed(db, block.id)
            item = next((item for item in block.items if item not in gone), None)
            if item is not None:
                claim = (block.id, item, owner, self._now())
                db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", claim)
        return item

    def _claimed(self, db: Connection, block: str) -> set[int]:
        """The items of a block that living drivers have claimed."""
        claims = db.execute("SELECT item, owner, beat FROM claims WHERE block = ?", (block,))
        return {item for item, owner, beat in claims if alive(owner, beat, self._now())}

    def left(self, blocks: Iterable[Block]) -> dict[str, int]:
        """For each block's id the number of items without rows, claimed or not."""
        query = "SELECT DISTINCT item FROM rows WHERE block = ?"
        with self._open() as db:
            return {
                b.id: len(b.items.keys() - {i for (i,) in db.execute(query, (b.id,))})
                for b in blocks
            }

    def commit(self, block: Block, item: int, owner: str, rows: Sequence[Row]) -> bool:
        """Keep all of an item's rows, or none.

        Args:
            block: the block
            item: the item's number
            owner: name of the driver
            rows: one for each cell of the block

        Returns:
            False if another process took the claim meanwhile; then none is kept
        """
        values = [(row.cell, item, block.id, date(), row.dumps()) for row in rows]
        with self._open() as db:
            claimed = db.execute(RELEASE, (block.id, item, owner)).rowcount > 0
            if claimed:
                db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", values)
            return claimed

    def release(self, block: Block, item: int, owner: str) -> None:
        """Give one item back."""
        with self._open() as db:
            db.execute(RELEASE, (block.id, item, owner))

    def beat(self, id: str, owner: str, eta: float | None, doing: str) -> None:
        """Record that a driver is alive.

        Args:
            id: the experiment's id
            owner: name of the driver
            eta: seconds left, None if not known
            doing: one line about the item at work
        """
        with self._open() as db:
            db.execute("UPDATE claims SET beat = ? WHERE owner = ?", (self._now(), owner))
            values = (id, owner, self._now(), eta, doing)
            db.execute("INSERT OR REPLACE INTO drivers VALUES (?, ?, ?, ?, ?)", values)

    def leave(self, owner: str) -> None:
        """Give back everything that a driver has claimed."""
        with self._open() as db:
            for table in ("claims", "drivers"):
                db.execute(f"DELETE FROM {table} WHERE owner = ?", (owner,))

    def _unusable(self, error: Exception) -> InputError:
        text = str(error)
        if "locked" in text or "busy" in text:
            fix = "another program holds it; close that program, then resume"
        elif "full" in text or getattr(error, "errno", None) == 28:
            fix = "the disk is full; free some space, then resume"
        elif "damaged" in text or "malformed" in text or "not a database" in text:
            fix = "move it away, and run the plans again"
        else:
            fix = "set WORKBENCH_DATA to another folder"
        return InputError(
            f"Experiments cannot be kept in {self.path} ({text}): {fix}. Everything committed "
            "before is kept."
        )
