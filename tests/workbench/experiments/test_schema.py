"""Journals of earlier versions: sound experiments open unchanged.

Wrong counts are reported, and the missing items can be run."""

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
from workbench.experiments import driver, workers
from workbench.experiments.files import markdown
from workbench.experiments.journal import Journal
from workbench.experiments.report import report
from workbench.experiments.workers import Crew
from workbench.runs.store import RunStore

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
    ("id", "done", "total", "ran"),
    [
        (SOUND, 5, 5, []),
        (TIMED_TWICE, 4, 6, [(1,), (2,)]),
        (BATCHES, 18, 18, []),
        (BEFORE_RAISED, 4, 4, []),
        (BEFORE_LOWERED, 6, 6, []),
    ],
)
def test_sound_experiments_open_unchanged_and_are_resumed_without_doing_anything_twice(
    old, id, done, total, ran
):
    """Item numbers now mean a prompt and a timing.

    Before, the third of two prompts timed twice was the first one again."""
    now = old.progress(id)
    assert (now.done, now.total, now.miscounted) == (done, total, False)
    assert resumed(old, id) == ran
    if id == TIMED_TWICE:
        assert prompts(old, id) == [{0: 2, 1: 2, 2: 2}] * 2


def test_rows_that_were_taken_for_those_of_other_prompts_are_put_under_their_own(old):
    """p0 p1 p0 p1 p1 p2 was taken for two timings of each of three prompts.

    And p0 p1 p2 p0 for two of each of two."""
    raised, lowered = old.progress(RAISED), old.progress(LOWERED)
    assert (raised.done, raised.total, raised.miscounted) == (5, 6, True)
    assert (lowered.done, lowered.total, lowered.miscounted) == (4, 4, True)
    assert prompts(old, RAISED) == [{0: 2, 1: 2, 2: 1}] * 2
    assert prompts(old, LOWERED) == [{0: 2, 1: 2}] * 2
    assert resumed(old, RAISED) == [(2,)]
    assert resumed(old, LOWERED) == []


def test_items_that_were_cut_off_are_missing_and_can_be_run(old):
    """The page said "7 of 7 items done" although three prompts of a decoder had never been run."""
    now = old.progress(SHARED)
    assert (now.done, now.total, now.miscounted) == (7, 10, True)
    assert prompts(old, SHARED) == [dict.fromkeys(range(5), 1), {0: 1, 1: 1}, {0: 1, 1: 1}]
    assert resumed(old, SHARED) == [(2,), (3,), (4,)]
    assert prompts(old, SHARED) == [
        dict.fromkeys(range(5), 1),
        dict.fromkeys(range(5), 1),
        {0: 1, 1: 1},
    ]


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


def test_a_journal_that_broke_takes_no_run_along(tmp_path, run):
    """Why experiments lie in a file of their own: see notes/experiments.md."""
    RunStore(tmp_path / "runs.sqlite").save(run)
    written(tmp_path).write_bytes(b"broken " * 1000)
    with pytest.raises(InputError, match="Experiments cannot be kept in"):
        Journal(tmp_path / "experiments.sqlite")
    assert [each.id for each in RunStore(tmp_path / "runs.sqlite").list()] == [run.id]


def test_a_journal_of_version_1_that_knows_of_no_runs_is_listed_and_resumed(old):
    with closing(sqlite3.connect(old.path)) as db, db:
        db.execute("DROP TABLE runs")
    journal = Journal(old.path)
    assert len(journal.experiments()) == len(old.experiments()) > 5
    assert resumed(journal, RAISED) == [(2,)]


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
