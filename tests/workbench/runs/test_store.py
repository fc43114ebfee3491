"""The file of past runs: several processes, older versions, all ways to be unusable, the hub."""

import json
import os
import shutil
import signal
import sqlite3
import stat
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import platformdirs
import pytest

from decoders import InputError
from tests.processes import CLEAN
from tests.workbench.runs import others
from workbench.runs.record import Run
from workbench.runs.store import RunStore, data_folder, recorded, recordings

VERSION_1 = Path(__file__).parent / "version1" / "runs.sqlite"


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "data" / "runs.sqlite")


@pytest.fixture
def small(run) -> Run:
    return replace(run, results=run.results[:1])


@pytest.fixture
def old(tmp_path) -> Path:
    """A copy of a file of version 1."""
    return Path(shutil.copy(VERSION_1, tmp_path / "runs.sqlite"))


def test_runs_of_every_kind_are_kept_listed_and_deleted(store, run, batch_run):
    run = replace(run, created="2026-01-01T00:00:00+00:00")
    batch_run = replace(batch_run, created="2026-01-02T00:00:00+00:00")
    for each in (run, batch_run):
        store.save(each)
        assert store.get(each.id) == each
    listed = [(r.id, r.kind, r.title) for r in store.list()]
    assert listed == [(batch_run.id, "batch", "4 <i>few</i>"), (run.id, "comparison", run.title)]
    assert store.list()[1].decoders == ["greedy", "beam_search", "speculative", "mtad", "dsbd"]
    assert [r.id for r in store.list(limit=1)] == [batch_run.id]
    store.delete(batch_run.id)
    assert [r.id for r in store.list()] == [run.id]
    store.save(run)
    assert len(store.list()) == 1


def test_the_list_is_of_one_kind_searched_and_ordered(store, small, batch_run):
    for i, title in enumerate(("A fox", "b FOX and an owl", "The <i>owl</i> 100%")):
        created = f"2026-01-0{i + 1}T00:00:00+00:00"
        store.save(replace(small, id=f"a{i}", title=title, created=created))
    store.save(replace(batch_run, id="b0", title="an animal", created="2026-01-02T12:00:00+00:00"))

    def ids(**options) -> list[str]:
        return [r.id for r in store.list(**options)]

    assert ids() == ["a2", "b0", "a1", "a0"]
    assert ids(order="oldest") == ["a0", "a1", "b0", "a2"]
    assert ids(order="title") == ["a0", "b0", "a1", "a2"]
    assert ids(kind="batch") == ["b0"]
    assert ids(kind="comparison", search="fox") == ["a1", "a0"]
    assert ids(search="owl fox") == ["a1"]
    assert ids(search="lookup") == ["b0"]
    assert ids(search="a2") == ["a2"]
    assert ids(search="%") == ["a2"]
    assert ids(search="'; DROP TABLE runs") == []
    assert ids(search="llama", limit=2) == ["a2", "b0"]


def test_a_run_from_outside_never_replaces_another(store, small):
    """An import with a used id silently replaced that run, on a public Space another visitor's."""
    assert store.add(small) == small  # its id is free
    stranger = replace(small, title="mine now")
    kept = store.add(stranger)
    assert kept.id != small.id
    assert kept == replace(stranger, id=kept.id)
    assert (store.get(small.id), store.get(kept.id)) == (small, kept)


def test_the_list_reads_the_beginning_of_a_title_that_is_too_long(store, small, batch_run):
    """One run with a title of two million characters, once imported, froze every list that had it.
    It is still found by its end."""
    where = {**small.environment, "target": {"name": "y" * 2_000_000}}
    store.save(replace(small, title="x" * 2_000_000 + " the end", environment=where))
    store.save(batch_run)
    (long,) = store.list(search="the end")
    assert (len(long.title), len(long.models)) == (200, 200)
    assert {each.id for each in store.list()} == {small.id, batch_run.id}
    assert store.get(small.id).title.endswith(" the end")


DAMAGE = {
    "decoders": "'[\"greedy'", "decoders of another kind": "'{}'",
    "decoders that are bytes": "x'ff00'", "id": "x'00ff'",
    "id that is none": "'; DROP TABLE runs'", "id that is no text": "CAST(x'ff' AS TEXT)",
    "id that is missing": "NULL", "id without end": "hex(zeroblob(1000000))",
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_row_is_listed_as_such_and_can_be_deleted(store, small, batch_run, what):
    """One damaged row took the whole list of runs away, Theory's too: a 500 and a traceback."""
    store.save(small)
    store.save(batch_run)
    with sqlite3.connect(store.path) as db:
        db.execute(f"UPDATE runs SET {what.split()[0]} = {DAMAGE[what]} WHERE id = ?", (small.id,))
    (sound,) = (each for each in store.list() if each.id == batch_run.id)
    assert (sound.kind, sound.title) == ("batch", batch_run.title)
    (damaged,) = (each for each in store.list() if each.id != batch_run.id)
    assert damaged.id == small.id or what.startswith("id")
    assert len(damaged.id) < 65
    if not what.startswith("id"):
        assert damaged.kind == "damaged"
        assert small.id in damaged.title
    store.delete(damaged.id)
    assert [each.id for each in store.list()] == [batch_run.id]


@pytest.mark.parametrize("json", ["7", "x'ff00'", "CAST(x'ff' AS TEXT)", "'half a ru'", "'[]'"])
def test_a_run_whose_json_is_damaged_is_one_sentence(store, small, json):
    store.save(small)
    with sqlite3.connect(store.path) as db:
        db.execute(f"UPDATE runs SET json = {json}")
    says = f"The run {small.id} cannot be read, only deleted. This is not a run"
    with pytest.raises(InputError, match=says) as said:
        store.get(small.id)
    assert "\n" not in str(said.value)
    assert [each.id for each in store.list()] == [small.id]
    store.delete(small.id)


def test_the_folder_is_the_one_the_environment_names_or_else_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path))
    assert RunStore().path == tmp_path / "runs.sqlite"
    monkeypatch.setenv("WORKBENCH_DATA", "")
    assert data_folder() == Path(platformdirs.user_data_dir("decoding-workbench"))


def test_the_list_says_how_tokens_were_drawn_also_of_earlier_files(store, old, small, draw_run):
    """Runs of one prompt at several temperatures and seeds stood in the list as equal lines."""
    settings = {**small.settings, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 5}
    store.save(replace(small, study={**small.study, "settings": settings}))
    store.save(draw_run)
    found = {summary.id: summary.asked for summary in store.list()}
    assert found[small.id] == "temperature 0.7, top-k 20, top-p 0.9, seed 5"
    assert found[draw_run.id] == "temperature 0.4, seed 0"
    with sqlite3.connect(store.path) as db:
        db.execute("ALTER TABLE runs DROP COLUMN asked")  # as version 3 had it
        db.execute("UPDATE runs SET json = 'broken' WHERE id = ?", (draw_run.id,))
    found = {summary.id: summary.asked for summary in RunStore(store.path).list()}
    assert found == {small.id: "temperature 0.7, top-k 20, top-p 0.9, seed 5", draw_run.id: ""}
    assert all(summary.asked.startswith("temperature ") for summary in RunStore(old).list())


def rows(path: Path) -> list[tuple]:
    columns = "id, created, prompt, decoders, models, json"
    with sqlite3.connect(path) as db:
        db.text_factory = bytes
        return db.execute(f"SELECT {columns} FROM runs ORDER BY rowid").fetchall()


def test_a_file_of_version_1_is_taken_over_with_its_rows_untouched(old, small):
    before = rows(old)
    store = RunStore(old)
    assert rows(old) == before
    listed = store.list(order="oldest")
    assert [(r.id, r.kind, r.title) for r in listed] == [
        (i.decode(), "comparison", p.decode()) for i, _, p, *_ in before
    ]
    for (_, _, prompt, decoders, models, text), summary in zip(before, listed, strict=True):
        run = store.get(summary.id)
        assert (run.title, run.models) == (prompt.decode(), models.decode())
        assert run.decoders == json.loads(decoders)
        assert run.results[0].alone.text == json.loads(text)["results"][0]["text"]
    store.save(small)
    assert RunStore(old).get(small.id) == small
    assert rows(old)[: len(before)] == before


def test_processes_that_take_over_a_file_of_version_1_and_add_the_same_run_at_once_lose_none(
    old, small
):
    before, barrier = rows(old), CLEAN.Barrier(4)
    four = [CLEAN.Process(target=others.add_when, args=(old, barrier, small)) for _ in range(4)]
    assert _exit_codes(four) == [0] * 4
    assert rows(old)[: len(before)] == before
    assert len(RunStore(old).list(kind="comparison")) == len(before) + 20


def test_a_crash_loses_at_most_the_run_that_was_being_written(store, small):
    ready = CLEAN.Event()
    worker = CLEAN.Process(target=others.die_in_mid_write, args=(store.path, small, ready))
    worker.start()
    assert ready.wait(30)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert [r.id for r in store.list()] == [small.id]
    assert store.get(small.id) == small
    store.save(replace(small, id="ee"))
    assert len(store.list()) == 2


def test_a_file_that_is_no_database_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "notes.sqlite").write_text("not a database at all, but some notes " * 10)
    for path in (tmp_path / "file" / "runs.sqlite", tmp_path / "notes.sqlite"):
        with pytest.raises(InputError, match="set WORKBENCH_DATA to another folder"):
            RunStore(path)


def test_a_file_that_broke_meanwhile_says_so_whatever_is_asked_of_it(store, small):
    store.save(small)
    for suffix in ("", "-wal", "-shm"):
        Path(f"{store.path}{suffix}").write_bytes(b"broken " * 1000)
    for act in (store.list, lambda: store.get(small.id), lambda: store.save(small),
                lambda: store.add(small), lambda: store.delete(small.id)):  # fmt: skip
        with pytest.raises(InputError, match="set WORKBENCH_DATA to another folder") as refusal:
            act()
        assert "\n" not in str(refusal.value)


def test_a_folder_that_may_not_be_written_is_one_sentence(small):
    """A run that could not be kept killed the page without a reason."""
    folder = Path(tempfile.mkdtemp())
    try:
        store = RunStore(folder / "runs.sqlite")
        for file in folder.iterdir():
            file.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        folder.chmod(0o555)
        nobody = CLEAN.Process(target=others.as_nobody, args=(partial(store.save, small),))
        assert _exit_codes([nobody]) == [0]
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_full_disk_is_one_sentence_and_what_was_there_stays(store, run, small):
    store.save(small)
    other = replace(run, id="ff")
    assert _exit_codes([CLEAN.Process(target=others.on_a_full_disk, args=(store, other))]) == [0]
    assert [r.id for r in store.list()] == [small.id]
    assert store.get(small.id) == small


def _exit_codes(workers: list) -> list[int]:
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    return [worker.exitcode for worker in workers]


def test_a_recorded_run_is_found_like_a_kept_one_but_is_not_among_them(tmp_path):
    store, first = RunStore(tmp_path / "runs.sqlite"), recordings()[0].run
    assert store.get(first.id) == first
    assert store.list() == []
    with pytest.raises(InputError, match="no run"):
        store.delete(first.id)
    assert recorded("0") is None


def test_an_imported_run_never_takes_the_place_of_a_recorded_one(tmp_path, run):
    """On a shared machine a visitor could have replaced what the gallery's links show."""
    store, first = RunStore(tmp_path / "runs.sqlite"), recordings()[0].run
    kept = store.add(replace(run, id=first.id))
    assert kept.id != first.id
    assert store.get(first.id) == first
    assert store.get(kept.id) == kept
