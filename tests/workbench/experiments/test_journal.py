"""The journal: claims, rows, files of earlier versions, and what cannot be written."""

import gzip
import shutil
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from decoders import InputError
from tests.workbench.experiments import killed
from tests.workbench.experiments.benches import Reader
from tests.workbench.experiments.killed import Pretend
from tests.workbench.experiments.made import row, sample
from tests.workbench.experiments.test_cells import DECODERS, spelled
from workbench.experiments import driver, workers
from workbench.experiments.files import markdown
from workbench.experiments.journal import STALE_SECONDS, ItemRow, Journal, new_owner
from workbench.experiments.plan import ExperimentRequest
from workbench.experiments.report import report
from workbench.experiments.workers import Crew
from workbench.runs.store import RunStore

(BLOCK,) = spelled(DECODERS)


def rows(item: int, error: str | None = None) -> list[ItemRow]:
    return [row(id, item, [sample(item, "ab")], {"new_tokens": 2}, error) for id in BLOCK.ids]


def begun(journal: Journal) -> Journal:
    journal.begin("e1", "title", ExperimentRequest("", "plan.toml").to_json(), {}, [BLOCK])
    return journal


def test_an_item_is_claimed_once_and_done_once(journal):
    begun(journal)
    one, two = new_owner(1), new_owner(2)
    assert [journal.claim(BLOCK, o) for o in (one, two, one, two, one, two)] == [
        0,
        1,
        2,
        3,
        4,
        None,
    ]
    assert journal.commit(BLOCK, 0, one, rows(0))
    assert not journal.commit(BLOCK, 0, one, rows(0))
    assert not journal.commit(BLOCK, 1, one, rows(1))  # it is the other's
    journal.leave(two)
    assert journal.claim(BLOCK, one) == 1
    assert journal.left([BLOCK]) == {BLOCK.id: 4}


def test_a_claim_is_free_when_its_process_is_gone_or_has_not_been_heard_of(tmp_path):
    clock = [1000.0]
    journal = begun(Journal(tmp_path / "j.sqlite", now=lambda: clock[0]))
    host, pid, started, rest = new_owner().split("|")
    dead, silent, far = (
        f"{host}|{pid}|{int(started) + 1}|{rest}",
        new_owner(),
        f"elsewhere|1|1|{rest}",
    )
    # the first one's process is gone
    assert [journal.claim(BLOCK, o) for o in (dead, silent, far)] == [0, 0, 1]
    clock[0] += STALE_SECONDS + 1
    journal.beat("e1", silent, None, "")
    assert [journal.claim(BLOCK, new_owner()) for _ in range(2)] == [1, 2]
    assert not journal.commit(BLOCK, 1, far, rows(1))


def test_a_locked_file_is_one_sentence_and_nothing_committed_is_lost(tmp_path):
    journal = begun(Journal(tmp_path / "j.sqlite", patience=0.1))
    owner = new_owner()
    journal.commit(BLOCK, journal.claim(BLOCK, owner), owner, rows(0))
    item = journal.claim(BLOCK, owner)
    with closing(sqlite3.connect(tmp_path / "j.sqlite")) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(
            InputError, match=r"database is locked\): another program holds it"
        ) as caught:
            journal.commit(BLOCK, item, owner, rows(item))
        assert "\n" not in str(caught.value)
    assert journal.progress("e1").done == 1
    assert journal.commit(BLOCK, item, owner, rows(item))


def test_a_full_disk_is_one_sentence_and_an_item_is_kept_whole_or_not_at_all(tmp_path, monkeypatch):
    journal = begun(Journal(tmp_path / "j.sqlite"))
    owner = new_owner()
    journal.commit(BLOCK, journal.claim(BLOCK, owner), owner, rows(0))
    item = journal.claim(BLOCK, owner)
    connect = sqlite3.connect

    def full(*args, **options):
        db = connect(*args, **options)
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0] + 2}")
        return db

    large = [row(id, item, [sample(item, "x" * 6000)]) for id in BLOCK.ids]
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


VERSION_1 = Path(__file__).parents[1] / "runs" / "version1"
WRITTEN = Path(__file__).with_name(
    "b2b7125.sql.gz"
)  # by the code of that commit, with answers that repeat their prompts
SOUND, TIMED_TWICE, BATCHES = "ed002042181c", "33f6b59b580e", "864b13185d41"
SHARED = "06b768e24f82"  # two parts share a decoder, of 5 prompts and of 2
BEFORE_RAISED, RAISED, BEFORE_LOWERED, LOWERED = (
    "ce205f457a9e",
    "4ccda4a24cd9",
    "12b4de75bf12",
    "ab7c63e87ebe",
)


def written(folder: Path) -> Path:
    """A journal that b2b7125 wrote: experiments to their end, one with 4 of 6 items."""
    folder.mkdir(exist_ok=True)
    path = folder / "experiments.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            gzip.decompress(WRITTEN.read_bytes()).decode().replace("FOLDER", str(folder))
        )
    (folder / "own.txt").write_text("\n".join(f"prompt {i}" for i in range(9)))
    return path


@pytest.fixture
def old(tmp_path, monkeypatch) -> Journal:
    journal = Journal(written(tmp_path))
    monkeypatch.setattr(workers, "code", lambda: journal.experiment(SOUND).environment["code"])
    return journal


def resumed(journal: Journal, id: str) -> list:
    """The prompts that ran when the experiment was resumed, which keeps its id."""
    bench = Reader()
    with Crew(Pretend(bench=bench)) as crew:
        experiment = driver.prepare(journal.experiment(id).request, crew)
        *_, last = driver.run(experiment, journal, crew)
    assert (experiment.id, last.done) == (id, last.total)
    return [prompts for _, prompts in bench.ran]


def prompts(journal: Journal, id: str) -> list[dict[int, int]]:
    """For each cell how often it has each prompt; each answer is of the prompt that it names."""
    found = []
    for kept in journal.cells(id):
        outputs = [row.outputs[0] for row in kept.rows.values()]
        assert all(o.text == f"prompt {o.prompt}" for o in outputs)
        found.append(dict(Counter(o.prompt for o in outputs)))
    return found


@pytest.mark.parametrize(
    ("id", "done", "total", "miscounted", "ran"),
    [
        (SOUND, 5, 5, False, []),
        (TIMED_TWICE, 4, 6, False, [(1,), (2,)]),
        (BATCHES, 18, 18, False, []),
        (BEFORE_RAISED, 4, 4, False, []),
        (BEFORE_LOWERED, 6, 6, False, []),
        (RAISED, 5, 6, True, [(2,)]),
        (LOWERED, 4, 4, True, []),
        (SHARED, 7, 10, True, [(2,), (3,), (4,)]),
    ],
)
def test_old_experiments_open_with_each_row_under_its_prompt_and_nothing_is_done_twice(
    old, id, done, total, miscounted, ran
):
    """Item numbers now mean a prompt and a timing. p0 p1 p0 p1 p1 p2 was taken for two timings of
    each of three prompts, and the page said "7 of 7 items done" although three prompts of a decoder
    had never been run."""
    now = old.progress(id)
    assert (now.done, now.total, now.miscounted) == (done, total, miscounted)
    assert resumed(old, id) == ran
    twice, once = [{0: 2, 1: 2, 2: 2}] * 2, dict.fromkeys(range(5), 1)
    whole = {
        TIMED_TWICE: twice, RAISED: twice, LOWERED: [{0: 2, 1: 2}] * 2,
        SHARED: [once, once, {0: 1, 1: 1}],
    }  # fmt: skip
    assert id not in whole or prompts(old, id) == whole[id]


def test_reports_say_what_an_earlier_version_did(old):
    assert (
        "under its own prompt, and 1 of 6 items still have to be run: resume the experiment."
        in markdown(report(old, RAISED))
    )
    assert (
        "under its own prompt, and nothing is missing: replace reports made by that version."
        in markdown(report(old, LOWERED))
    )
    assert "earlier version" not in markdown(report(old, SOUND))


def test_files_are_brought_up_to_date_once_and_by_one_process(tmp_path):
    path = written(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        journals = list(threads.map(lambda _: Journal(path), range(8)))
    assert {journal.progress(RAISED) for journal in journals} == {Journal(path).progress(RAISED)}


def test_runs_and_experiments_of_every_version_may_lie_in_one_file(tmp_path, run):
    """One schema: what opens a file for runs keeps the journal in it, and the other way round."""
    path = written(tmp_path)
    RunStore(path).save(run)
    journal = Journal(path)
    assert counts(journal) == (5, 6, True)
    assert [each.id for each in RunStore(path).list()] == [run.id]
    old_runs = Path(shutil.copy(VERSION_1 / "runs.sqlite", tmp_path / "runs.sqlite"))
    listed = RunStore(old_runs).list()
    killed.main(str(old_runs), 0.0)
    assert len(Journal(old_runs).experiments()) == 1
    assert RunStore(old_runs).list() == listed != []


def test_a_plan_that_is_damaged_keeps_its_experiment_only(tmp_path):
    path = written(tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        plans = {SOUND: "part = 3", TIMED_TWICE: "= x", SHARED: "part = [{ timings = [] }]"}
        for id, plan in plans.items():
            db.execute(
                "UPDATE experiments SET request = json_set(request, '$.plan', ?) WHERE id = ?",
                (plan, id),
            )
    assert counts(Journal(path)) == (5, 6, True)


def counts(journal: Journal) -> tuple[int, int, bool]:
    now = journal.progress(RAISED)
    return now.done, now.total, now.miscounted
