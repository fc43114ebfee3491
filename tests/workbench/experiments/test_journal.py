"""The journal: claims, rows, files of earlier versions, and what cannot be written."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from decoders import InputError
from tests.workbench.experiments import killed
from tests.workbench.experiments.made import row, sample
from tests.workbench.experiments.test_cells import DECODERS, spelled
from workbench.experiments.journal import STALE_SECONDS, Journal, new_owner
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.report import report
from workbench.runs.record import Result
from workbench.runs.store import RunStore

(BLOCK,) = spelled(DECODERS)


def rows(item: int) -> list[Result]:
    return [row([sample(item, "ab")], {"new_tokens": 2}) for _ in BLOCK.ids]


def begun(journal: Journal) -> Journal:
    journal.begin("e1", "title", ExperimentRequest("", "plan.toml").to_json(), {}, [BLOCK])
    return journal


def one_done(journal: Journal) -> tuple[str, int]:
    """Who has done one item, and the next one, which it has claimed."""
    owner = new_owner()
    journal.commit(BLOCK, journal.claim(BLOCK, owner), owner, rows(0))
    return owner, journal.claim(BLOCK, owner)


def test_an_item_is_claimed_once_and_done_once(journal):
    begun(journal)
    one, two = new_owner(), new_owner()
    claims = [journal.claim(BLOCK, owner) for owner in (one, two) * 3]
    assert claims == [0, 1, 2, 3, 4, None]
    assert journal.commit(BLOCK, 0, one, rows(0))
    assert not journal.commit(BLOCK, 0, one, rows(0))
    assert not journal.commit(BLOCK, 1, one, rows(1))  # it is the other's
    journal.leave(two)
    assert journal.claim(BLOCK, one) == 1
    assert journal.left([BLOCK]) == {(BLOCK.id, item) for item in range(1, 5)}


def test_a_claim_is_free_when_its_process_is_gone_or_has_not_been_heard_of(tmp_path):
    journal = begun(Journal(tmp_path / "j.sqlite"))
    host, pid, started, rest = new_owner().split("|")
    dead, silent = f"{host}|{pid}|{int(started) + 1}|{rest}", new_owner()
    far = f"elsewhere|1|1|{rest}"
    # the first one's process is gone
    assert [journal.claim(BLOCK, o) for o in (dead, silent, far)] == [0, 0, 1]
    with closing(sqlite3.connect(journal.path)) as db, db:
        db.execute("UPDATE claims SET beat = beat - ?", (STALE_SECONDS + 1,))
    journal.beat("e1", silent, None, "")
    assert [journal.claim(BLOCK, new_owner()) for _ in range(2)] == [1, 2]
    assert not journal.commit(BLOCK, 1, far, rows(1))


def test_a_locked_file_is_one_sentence_and_nothing_committed_is_lost(tmp_path):
    journal = begun(Journal(tmp_path / "j.sqlite", patience=0.1))
    owner, item = one_done(journal)
    with closing(sqlite3.connect(tmp_path / "j.sqlite")) as other:
        other.execute("BEGIN EXCLUSIVE")
        says = r"database is locked\): another program holds it"
        with pytest.raises(InputError, match=says) as caught:
            journal.commit(BLOCK, item, owner, rows(item))
        assert "\n" not in str(caught.value)
    assert journal.progress("e1").done == 1
    assert journal.commit(BLOCK, item, owner, rows(item))


def test_a_full_disk_is_one_sentence_and_an_item_is_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    journal = begun(Journal(tmp_path / "j.sqlite"))
    owner, item = one_done(journal)
    connect = sqlite3.connect

    def full(*args, **options):
        db = connect(*args, **options)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0] + 2}")
        return db

    large = [row([sample(item, "x" * 6000)]) for _ in BLOCK.ids]
    monkeypatch.setattr("workbench.runs.store.sqlite3.connect", full)
    with pytest.raises(InputError, match="the disk is full; free some space, then resume"):
        journal.commit(BLOCK, item, owner, large)
    monkeypatch.undo()
    assert journal.progress("e1").done == 1
    assert journal.commit(BLOCK, item, owner, large)
    assert journal.progress("e1").done == 2


def test_a_damaged_file_is_one_sentence_before_anything_runs(tmp_path):
    """Rows were checked for damage of any kind, and torn pages were said in SQLite's words."""
    path = tmp_path / "experiments.sqlite"
    killed.main(str(path), 0.0)
    whole = path.read_bytes()
    for torn in (b"x" * len(whole), whole[:4096] + b"\xff" * 4096 + whole[8192:]):
        path.write_bytes(torn)
        for more in path.parent.glob("*-*"):
            more.unlink()  # what SQLite would mend it from
        with pytest.raises(InputError, match=r"move it away, and run the plans again") as said:
            Journal(path)
        assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    "change", ["experiments SET request = '['", "cells SET asked = '['", "rows SET json = '{}'"]
)
def test_what_no_program_wrote_is_one_sentence(tmp_path, change):
    path = tmp_path / "experiments.sqlite"
    id = killed.main(str(path), 0.0)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE {change}")
    journal = Journal(path)
    assert [each.id for each in journal.experiments()] == [id]
    with pytest.raises(InputError, match=r"it is damaged\): move it away"):
        report(journal, id)


def test_experiments_of_version_0_are_one_sentence(tmp_path):
    with closing(sqlite3.connect(tmp_path / "experiments.sqlite")) as db, db:
        db.execute("CREATE TABLE rows (cell TEXT, item INTEGER, json TEXT)")
    with pytest.raises(InputError, match=r"version 0.*move it away, and run the plans again"):
        Journal(tmp_path / "experiments.sqlite")


def test_runs_and_experiments_of_every_version_may_lie_in_one_file(tmp_path, run):
    """One schema: what opens a file for runs keeps the journal in it, and the other way round."""
    old_runs = Path(__file__).parents[1] / "runs" / "version1" / "runs.sqlite"
    path = Path(shutil.copy(old_runs, tmp_path / "runs.sqlite"))
    listed = RunStore(path).list()
    killed.main(str(path), 0.0)
    assert len(Journal(path).experiments()) == 1
    assert RunStore(path).list() == listed != []
