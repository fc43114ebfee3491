"""The child process that runs one query that a model wrote.

It imports nothing of this project, reads {"database", "query", "deadline"} from standard input and
writes {"rows", "error"}.
"""

import json
import resource
import sqlite3
import sys
import time
from typing import Any
from urllib.parse import quote

MEMORY = 512 * 2**20  # bytes of address space
HEAP = 64 * 2**20  # bytes that SQLite may take
LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 2**20,  # of a value
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
}
MOST_ROWS, MOST_BYTES = 20_000, 8 * 2**20
ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


TOUCHING = ("load_extension", "readfile", "writefile")  # functions that reach files


def guard(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Allow reading and computing only: no write, ATTACH, PRAGMA or extension.

    Args:
        action: SQLite's code of the action
        second: its second argument, which names a function
    """
    touches = action == sqlite3.SQLITE_FUNCTION and second in TOUCHING
    return sqlite3.SQLITE_OK if action in ALLOWED and not touches else sqlite3.SQLITE_DENY


def limit_process(deadline: float) -> None:
    """Limit the memory and time of this process, and forbid it to write files."""
    limits = {
        resource.RLIMIT_AS: (MEMORY, MEMORY),
        resource.RLIMIT_CPU: (int(deadline) + 1, int(deadline) + 2),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, limit in limits.items():
        resource.setrlimit(name, limit)


def connect(path: str, deadline: float) -> sqlite3.Connection:
    """A read-only, guarded connection that stops after `deadline` seconds."""
    db = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None)
    db.text_factory = lambda data: data.decode("utf-8", "ignore")  # as the official script does
    for pragma in (f"hard_heap_limit = {HEAP}", "temp_store = MEMORY", "trusted_schema = OFF"):
        db.execute(f"PRAGMA {pragma}")
    for limit, most in LIMITS.items():
        db.setlimit(limit, most)
    end = time.monotonic() + deadline
    db.set_progress_handler(lambda: time.monotonic() > end, 10_000)
    db.set_authorizer(guard)
    return db


def rows_of(db: sqlite3.Connection, query: str) -> list[list[Any]]:
    """The rows of a query. Raises ValueError if there are too many."""
    rows: list[list[Any]] = []
    size = 0
    for row in db.execute(query):
        rows.append([{"hex": v.hex()} if isinstance(v, bytes) else v for v in row])
        size += sum(len(v) if isinstance(v, (str, bytes)) else 8 for v in row)
        if len(rows) > MOST_ROWS or size > MOST_BYTES:
            raise ValueError(
                f"its result is larger than {MOST_ROWS} rows or {MOST_BYTES // 2**20} MB"
            )
    return rows


def main() -> None:
    order = json.load(sys.stdin)
    limit_process(order["deadline"])
    rows: list[list[Any]] = []
    error = None
    try:
        rows = rows_of(connect(order["database"], order["deadline"]), order["query"])
    except sqlite3.OperationalError as failure:
        error = f"SQLite: {failure}"
        if str(failure) == "interrupted":
            error = f"stopped after {order['deadline']:g} s"
    except MemoryError:
        error = "it took too much memory"
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as failure:
        error = f"SQLite: {failure}"
    print(json.dumps({"rows": [] if error else rows, "error": error}))


if __name__ == "__main__":
    main()
