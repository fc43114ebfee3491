"""Damaged rows of the journal: other experiments open, and the damaged one says so."""

import sqlite3
from contextlib import closing

import pytest

from decoders import InputError
from tests.hostile.damage import EXPERIMENT, WRONG, damaged
from tests.workbench.experiments import killed
from workbench.experiments.files import WRITERS
from workbench.experiments.journal import Journal
from workbench.experiments.report import report


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "experiments.sqlite"
    killed.main(str(path), 0.0)
    return path


def copied(path, tmp_path):
    """A fresh journal with a second experiment."""
    copy = tmp_path / "experiments.sqlite"
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(copy)) as other:
        db.backup(other)
        with other:
            names = [column[1] for column in other.execute("PRAGMA table_info(experiments)")][1:]
            other.execute(
                f"INSERT INTO experiments (id, {', '.join(names)}) SELECT 'whole', "
                f"{', '.join(names)} FROM experiments"
            )
    return copy


@pytest.mark.parametrize(
    "change", [c for c in EXPERIMENT if not c.startswith("rows") and "zeroblob" not in c]
)
def test_a_damaged_experiment_is_named_and_the_others_open(path, tmp_path, change):
    """A damaged cell, or a damaged request, ended the list and the report in a traceback."""
    copy = copied(path, tmp_path)
    with closing(sqlite3.connect(copy)) as db:
        (id,) = db.execute("SELECT id FROM experiments WHERE id <> 'whole'").fetchone()
    journal = Journal(copy)
    with damaged(copy, change):
        listed = journal.experiments()
        assert "whole" in [each.id for each in listed]
        said = ""
        try:
            found = report(journal, id)
            for write in WRITERS.values():
                write(found)
        except InputError as error:
            said = str(error)
        assert not said or "is damaged in" in said or "There is no experiment" in said


@pytest.mark.parametrize("wrong", [w for w in WRONG if w != "7"])
def test_rows_whose_item_is_damaged_are_run_again(path, tmp_path, wrong):
    """The list of experiments and every report ended in a traceback: a text % a number formats."""
    copy = copied(path, tmp_path)
    journal = Journal(copy)
    (id,) = (each.id for each in journal.experiments() if each.id != "whole")
    with damaged(copy, f"rows SET item = {wrong}"):
        assert all(write(report(journal, id)) for write in WRITERS.values())
        assert journal.progress(id).done == journal.progress(id).total - 1  # it is run again


def test_a_plan_that_is_run_again_mends_its_experiment(path, tmp_path):
    """Its request is written anew, and its rows are used."""
    copy = copied(path, tmp_path)
    with closing(sqlite3.connect(copy)) as db, db:
        (id,) = db.execute("SELECT id FROM experiments WHERE id <> 'whole'").fetchone()
        db.execute("UPDATE experiments SET environment = '[' WHERE id = ?", (id,))
        db.execute("UPDATE cells SET asked = '[' WHERE experiment = ?", (id,))
        rows = db.execute("SELECT cell, item, created FROM rows ORDER BY cell, item").fetchall()
    journal = Journal(copy)
    with pytest.raises(
        InputError, match=r"is damaged in .*; run its plan again: its finished rows are kept"
    ):
        report(journal, id)
    assert killed.main(str(copy), 0.0) == id
    found = report(journal, id)
    assert found.progress.done == found.progress.total > 0
    with closing(sqlite3.connect(copy)) as db:
        assert (
            db.execute("SELECT cell, item, created FROM rows ORDER BY cell, item").fetchall()
            == rows
        )
