"""The child process that runs one query that a model wrote.

It imports nothing of this project, reads {"database", "query", "deadline"} from standard input and
writes {"rows", "error"}.
"""

import json
import resource
import sqlite3
import sys
from typing import Any
from urllib.parse import quote

MEMORY = 512 * 2**20  # bytes of address space
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


def limit_process(deadline: float) -> None:
    limits = {
        resource.RLIMIT_AS: (MEMORY, MEMORY),
        resource.RLIMIT_CPU: (int(deadline) + 5, int(deadline) + 6),
        resource.RLIMIT_FSIZE: (0, 0),
        resource.RLIMIT_CORE: (0, 0),
    }
    for name, limit in limits.items():
        resource.setrlimit(name, limit)


def connect(path: str) -> sqlite3.Connection:
    """A connection that can only read and compute: no write, ATTACH, PRAGMA or extension."""
    db = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, isolation_level=None)
    db.text_factory = lambda data: data.decode("utf-8", "ignore")  # as the official script does
    for pragma in ("temp_store = MEMORY", "trusted_schema = OFF"):
        db.execute(f"PRAGMA {pragma}")
    for limit, most in LIMITS.items():
        db.setlimit(limit, most)
    db.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY
    )
    return db


def rows_of(db: sqlite3.Connection, query: str) -> list[list[Any]]:
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
        rows = rows_of(connect(order["database"]), order["query"])
    except MemoryError:
        error = "it took too much memory"
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as failure:
        error = f"SQLite: {failure}"
    print(json.dumps({"rows": [] if error else rows, "error": error}))


if __name__ == "__main__":
    main()
