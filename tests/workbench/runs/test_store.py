import dataclasses
import json
import multiprocessing
import os
import signal
import sqlite3
import time

import pytest

from decoders import InputError
from workbench.runs.store import Run, RunStore, data_folder


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "data" / "runs.sqlite")


def test_a_run_comes_back_from_its_json_whole(run):
    text = json.dumps(run.to_json(), allow_nan=False)
    assert Run.from_json(text) == run
    assert Run.from_json(text.encode()) == run


def test_the_json_has_what_the_endpoint_promises(run):
    data = run.to_json()
    assert {"id", "created", "prompt", "settings", "environment", "results", "version"} <= set(data)
    shared = {"max_new_tokens", "temperature", "top_k", "top_p", "seed", "repeats", "chat_template", "decoders"}
    assert shared | set(data["settings"]["decoders"]) == set(data["settings"])
    result = data["results"][0]
    assert {"decoder", "text", "tokens", "rounds", "metrics", "energy", "greedy_check"} <= set(result)
    assert {"id", "text", "fate", "round", "p", "q", "accept_probability", "u", "log_p", "alternatives"} <= set(
        result["tokens"][0]
    )


def broken(run, change):
    data = run.to_json()
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": "decoding-workbench run"}',
        b"\xff\xfe\x00",
        "[" * 5000,
        '{"id": "a' + "\\ud800" + '"}',
    ],
)
def test_a_file_that_is_broken_or_foreign_gives_one_clear_sentence(text):
    with pytest.raises(InputError, match="This is not a run of the workbench: ") as refusal:
        Run.from_json(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda d: d.update(version=2), "version"),
        (lambda d: d.update(format="something else"), "format"),
        (lambda d: d.update(id='"><script>'), "id"),
        (lambda d: d.update(surprise=1), "surprise"),
        (lambda d: d.pop("prompt"), "prompt"),
        (lambda d: d["results"][0]["tokens"][2].update(p="high"), r"results\[0\].tokens\[2\].p"),
        (lambda d: d["results"][0]["tokens"][2].update(p=float("nan")), r"results\[0\].tokens\[2\].p"),
        (lambda d: d["results"][1]["rounds"][0].update(trials=None), r"results\[1\].rounds\[0\].trials"),
        (lambda d: d["results"][0]["tokens"][0].update(onclick="x"), r"results\[0\].tokens\[0\].onclick"),
    ],
)
def test_a_file_that_is_wrong_somewhere_names_the_place(run, change, place):
    with pytest.raises(InputError, match=f"not a run of the workbench: {place}: "):
        Run.from_json(broken(run, change))


def test_runs_are_kept_listed_and_deleted(store, run):
    later = dataclasses.replace(run, id="ff", created="2999-01-01T00:00:00+00:00", prompt="later")
    store.save(run)
    store.save(later)
    assert store.get(run.id) == run
    assert [(r.id, r.prompt) for r in store.list()] == [("ff", "later"), (run.id, run.prompt)]
    assert store.list()[1].decoders == ["greedy", "beam_search", "speculative", "mtad", "dsbd"]
    assert [r.id for r in store.list(limit=1)] == ["ff"]
    store.delete("ff")
    assert [r.id for r in store.list()] == [run.id]
    store.save(run)
    assert len(store.list()) == 1


def test_a_run_that_does_not_exist_is_named(store):
    for act in (store.get, store.delete):
        with pytest.raises(InputError, match="There is no run 'abc'"):
            act("abc")


def test_runs_survive_a_restart(store, run):
    store.save(run)
    assert RunStore(store.path).get(run.id) == run


def test_the_folder_is_the_one_the_environment_names_or_else_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path))
    assert RunStore().path == tmp_path / "runs.sqlite"
    monkeypatch.delenv("WORKBENCH_DATA")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert data_folder() == tmp_path / "home" / "decoding-workbench"


def test_a_place_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="set WORKBENCH_DATA to another folder"):
        RunStore(tmp_path / "file" / "runs.sqlite")
    (tmp_path / "notes.sqlite").write_text("not a database at all, but some notes " * 10)
    with pytest.raises(InputError, match="set WORKBENCH_DATA to another folder"):
        RunStore(tmp_path / "notes.sqlite")


def _save_many(path, run, first):
    store = RunStore(path)
    for i in range(first, first + 20):
        store.save(dataclasses.replace(run, id=f"{i:x}"))


def test_two_processes_use_the_file_at_once(store, run):
    context = multiprocessing.get_context("fork")
    small = dataclasses.replace(run, results=run.results[:1])
    workers = [context.Process(target=_save_many, args=(store.path, small, first)) for first in (100, 200)]
    for worker in workers:
        worker.start()
    seen = []
    while any(worker.is_alive() for worker in workers):
        seen.append(len(store.list()))
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(store.list()) == 40
    assert seen == sorted(seen)


def _die_in_mid_write(path, run, ready):
    store = RunStore(path)
    store.save(run)
    db = sqlite3.connect(path)
    db.execute("DELETE FROM runs")
    db.execute("INSERT INTO runs VALUES ('dd', '', '', '[]', '', 'half a ru')")
    ready.set()
    time.sleep(60)


def test_a_crash_loses_at_most_the_run_that_was_being_written(store, run):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=_die_in_mid_write, args=(store.path, run, ready))
    worker.start()
    assert ready.wait(30)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    assert [r.id for r in store.list()] == [run.id]
    assert store.get(run.id) == run
    store.save(dataclasses.replace(run, id="ee"))
    assert len(store.list()) == 2
