"""Drivers that are killed with `kill -9` and resumed, and two at once."""

import random
import sqlite3
import time
from contextlib import closing
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.pairwise import EVERYWHERE
from tests.processes import CLEAN
from tests.workbench.experiments import killed
from tests.workbench.experiments.conftest import answers
from workbench.experiments.journal import Journal

ITEMS = 24  # 8 blocks of three decoders, 16 single samples


def started(path: Path, seconds: float) -> BaseProcess:
    """A process that has all modules already; what it runs computes nothing with torch."""
    process = CLEAN.Process(target=killed.main, args=(str(path), seconds))
    process.start()
    return process


def committed(path: Path) -> int:
    try:
        with closing(sqlite3.connect(path, timeout=30)) as db:
            items = "SELECT DISTINCT block, item FROM rows"
            return db.execute(f"SELECT count(*) FROM ({items})").fetchone()[0]
    except sqlite3.OperationalError:  # not made yet
        return 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> set:
    path = tmp_path_factory.mktemp("whole") / "whole.sqlite"
    return answers(Journal(path), killed.main(str(path), 0.0))


def blocks_are_whole(path: Path) -> bool:
    """An item has the rows of all its block's cells or none."""
    with closing(sqlite3.connect(path)) as db:
        cells = dict(db.execute("SELECT block, count(DISTINCT cell) FROM cells GROUP BY block"))
        found = db.execute("SELECT block, item, count(*) FROM rows GROUP BY block, item").fetchall()
    return all(cells[block] == count for block, _, count in found)


def test_killed_at_random_moments_it_ends_with_the_rows_of_an_undisturbed_run(
    undisturbed, tmp_path
):
    path, source, done = tmp_path / "j.sqlite", random.Random(15), 0
    for _ in range(5 if EVERYWHERE else 1):
        process = started(path, 0.15)
        while committed(path) <= done and process.is_alive():
            time.sleep(0.01)
        time.sleep(source.uniform(0, 0.4))
        process.kill()
        process.join()
        assert committed(path) >= done + 1
        done = committed(path)
        assert blocks_are_whole(path)
    assert done < ITEMS
    id = killed.main(str(path), 0.0)
    assert answers(Journal(path), id) == undisturbed
    assert committed(path) == ITEMS
    assert Journal(path).progress(id).done == ITEMS
