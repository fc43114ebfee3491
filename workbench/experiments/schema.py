"""The tables of the journal's file, and the update of a file of an earlier version."""

import sqlite3
from collections import defaultdict

from decoders import InputError
from workbench.experiments import plan_file
from workbench.experiments.rows import NEXT_TIMING

VERSION = 1
# `items` counts those of the cell, all timings together; `miscounted` says whether an earlier
# version took some rows for those of other prompts.
CREATE = """
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


def prepare(db: sqlite3.Connection) -> None:
    """Make or update the tables, in one transaction that waits for other processes.

    Args:
        db: the journal's file
    """
    if _version(db) == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    if _version(db) == VERSION:
        return  # another process did it meanwhile
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
        _number_by_prompt(db)
    for statement in CREATE.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {VERSION}")


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


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
    seen: defaultdict[tuple[str, int], int] = defaultdict(int)
    for (block, item), place in sorted(places.items()):
        number = NEXT_TIMING * seen[block, place] + place
        seen[block, place] += 1
        if number != item:
            # Negative until all are moved, because another row may still have this number.
            db.execute(
                "UPDATE rows SET item = ? WHERE block = ? AND item = ?", (-1 - number, block, item)
            )
    db.execute("UPDATE rows SET item = -1 - item WHERE item < 0")
    db.execute("DELETE FROM claims")  # by the old numbers


def _add_timings(db: sqlite3.Connection) -> None:
    query = f"SELECT id, {_within('request', '$.plan')} FROM experiments"
    for id, plan in db.execute(query).fetchall():
        try:
            parts = plan_file.parse(plan or "", "").parts
        except InputError:
            # It names a decoder that is gone, say, so it can be neither run nor reported.
            continue
        for part in parts:
            query = (
                "UPDATE cells SET timings = ? WHERE experiment = ? AND part = ? AND items % ? = 0"
            )
            db.execute(query, (part.timings, id, part.name, part.timings))


def _recount(db: sqlite3.Connection, places: dict[tuple[str, int], int]) -> None:
    """Correct the totals: where parts shared work, version 0 counted only the last part's items."""
    asked: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    wrong = set()
    query = "SELECT DISTINCT experiment, block, items, timings FROM cells"
    for id, block, items, timings in db.execute(query):
        for item in range(items):
            again, place = divmod(item, items // timings)
            asked[id].add((block, NEXT_TIMING * again + place))
            if places.get((block, item), place) != place:
                wrong.add(id)
    for id, total in db.execute("SELECT id, total FROM experiments").fetchall():
        found = (len(asked[id]), id in wrong or len(asked[id]) != total, id)
        db.execute("UPDATE experiments SET total = ?, miscounted = ? WHERE id = ?", found)


def _places(db: sqlite3.Connection) -> dict[tuple[str, int], int]:
    """By block and old number, the place of the item's prompts in their set, as its rows say."""
    sizes = dict(db.execute(f"SELECT block, {_within('asked', '$.batch_size')} FROM cells"))
    place = f"max({_within('json', '$.outputs[0].prompt')})"
    query = f"SELECT block, item, {place} FROM rows GROUP BY block, item"
    known = range(NEXT_TIMING)
    return {(b, i): p // (sizes.get(b) or 1) if p in known else i for b, i, p in db.execute(query)}


def _within(column: str, path: str) -> str:
    """SQL for a value in a column of JSON; NULL if the JSON is damaged."""
    return f"CASE WHEN json_valid({column}) THEN json_extract({column}, '{path}') END"
