"""The work on experiments: which driver is at work on which item, and the rows that it commits."""

from collections.abc import Iterable, Sequence

from workbench.experiments.cells import Block
from workbench.experiments.journal_file import JournalFile, date
from workbench.experiments.owners import alive
from workbench.experiments.rows import Row


class Claims(JournalFile):
    """The part of the journal that drivers write; its arguments are those of `JournalFile`."""

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
            query = "SELECT DISTINCT item FROM rows WHERE block = ?"
            done = {i for (i,) in db.execute(query, (block.id,))}
            query = "SELECT item, owner, beat FROM claims WHERE block = ?"
            claims = db.execute(query, (block.id,)).fetchall()
            taken = {item for item, other, beat in claims if alive(other, beat, self._now())}
            for item in block.items:
                if item not in done and item not in taken:
                    claim = (block.id, item, owner, self._now())
                    db.execute("INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?)", claim)
                    return item
        return None

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
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            mine = "block = ? AND item = ? AND owner = ?"
            claimed = db.execute(f"DELETE FROM claims WHERE {mine}", (block.id, item, owner))
            if claimed.rowcount == 0:
                return False
            created = date()
            for row in rows:
                values = (row.cell, item, block.id, created, row.dumps())
                db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", values)
        return True

    def release(self, block: Block, item: int, owner: str) -> None:
        """Give one item back."""
        mine = "block = ? AND item = ? AND owner = ?"
        with self._open() as db:
            db.execute(f"DELETE FROM claims WHERE {mine}", (block.id, item, owner))

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
            db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
            db.execute("DELETE FROM drivers WHERE owner = ?", (owner,))
