"""`python -m workbench runs`: past runs of every kind."""

import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from workbench.runs.record import Run
from workbench.runs.store import RunStore

VERSION_1 = Path(__file__).parents[1] / "runs" / "version1"


@pytest.fixture(params=["comparison", "batch"])
def any_run(request, run, batch_run) -> Run:
    return run if request.param == "comparison" else batch_run


def test_past_runs_are_listed_shown_compared_exported_imported_and_deleted(
    call, store, any_run, tmp_path
):
    store.save(any_run)
    status, out, _ = call("runs")
    assert (status, any_run.id in out, any_run.kind in out) == (0, True, True)
    assert f"temperature {any_run.settings['temperature']:g}, seed 0" in out
    status, out, _ = call("runs", "show", any_run.id)
    assert "speculative" in out
    assert "tokens/s" in out
    assert "\x1b[31m" not in out
    status, out, _ = call("runs", "compare", any_run.id, any_run.id)
    assert "tokens/s" in out
    for kind in ("json", "csv", "html"):
        assert call("runs", "export", any_run.id, str(tmp_path / f"run.{kind}"))[0] == 0
    assert call("runs", "delete", any_run.id)[0] == 0
    assert call("runs")[1].strip() == "There are no runs yet."
    assert call("runs", "import", str(tmp_path / "run.json")) == (
        0,
        f"kept as run {any_run.id}\n",
        "",
    )
    assert store.get(any_run.id) == any_run


def test_a_damaged_row_leaves_the_others_in_the_list(call, store, run, batch_run):
    """One damaged row ended the list in a traceback."""
    store.save(run)
    store.save(batch_run)
    with sqlite3.connect(store.path) as db:
        db.execute("UPDATE runs SET decoders = '[half', json = 'half' WHERE id = ?", (run.id,))
    status, out, _ = call("runs")
    assert (status, "damaged" in out, run.id in out, batch_run.id in out) == (0, True, True, True)
    for ask in (
        ("show", run.id),
        ("compare", run.id, batch_run.id),
        ("export", run.id, "run.json"),
    ):
        status, _, said = call("runs", *ask)
        assert (status, said.count("\n")) == (2, 1)
        assert "cannot be read, only deleted" in said
    assert call("runs", "delete", run.id)[0] == 0
    assert run.id not in call("runs")[1]


def test_a_run_of_each_kind_can_be_compared(call, store, run, batch_run):
    store.save(run)
    store.save(batch_run)
    status, out, _ = call("runs", "compare", run.id, batch_run.id)
    assert status == 0
    assert "greedy" in out


def test_an_import_never_replaces_a_run(call, store, run, tmp_path):
    """An imported file with the id of a run that was there silently replaced it."""
    store.save(run)
    (tmp_path / "other.json").write_text(json.dumps({**run.to_json(), "title": "other"}))
    status, out, _ = call("runs", "import", str(tmp_path / "other.json"))
    assert status == 0
    assert run.id not in out
    assert store.get(run.id) == run
    assert {r.title for r in store.list()} == {run.title, "other"}


def test_the_list_is_of_a_kind_searched_and_ordered(call, store, run, batch_run):
    store.save(
        dataclasses.replace(run, id="aa", title="Zebra", created="2026-01-02T00:00:00+00:00")
    )
    store.save(
        dataclasses.replace(run, id="bb", title="apple", created="2026-01-01T00:00:00+00:00")
    )
    store.save(dataclasses.replace(batch_run, id="cc", created="2026-01-03T00:00:00+00:00"))

    def ids(*flags: str) -> list[str]:
        return [
            line.split()[0]
            for line in call("runs", "list", *flags)[1].splitlines()[1:]
            if line[0] != " "
        ]

    assert ids() == ["cc", "aa", "bb"]
    assert ids("--order", "oldest") == ["bb", "aa", "cc"]
    assert ids("--kind", "comparison", "--order", "title") == ["bb", "aa"]
    assert ids("--search", "zeb mtad") == ["aa"]
    assert call("runs", "list", "--search", "unicorn")[1].strip() == "No run matches."


@pytest.mark.parametrize("name", ["comparison", "comparison_t0", "batch"])
def test_files_of_version_1_are_imported_shown_and_exported(call, name, tmp_path):
    status, out, _ = call("runs", "import", str(VERSION_1 / f"{name}.json"))
    assert status == 0
    id = out.removeprefix("kept as run ").strip()
    assert "greedy" in call("runs", "show", id)[1]
    for kind in ("json", "csv", "html"):
        assert call("runs", "export", id, str(tmp_path / f"out.{kind}"))[0] == 0


def test_the_runs_of_version_1_are_listed_and_shown(call, store):
    store.path.unlink()
    shutil.copy(VERSION_1 / "runs.sqlite", store.path)
    for summary in RunStore().list():
        assert summary.id in call("runs")[1]
        status, out, _ = call("runs", "show", summary.id)
        assert status == 0
        assert "tokens/s" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("runs show abc", "There is no run 'abc'"),
        ("runs delete abc", "There is no run 'abc'"),
        ("runs compare abc abc", "There is no run 'abc'"),
        ("runs export abc out.pdf", "must end in .json, .csv, .html"),
        ("runs import /no/such/file", "cannot be read"),
        (f"runs import {__file__}", "This is not a run of the workbench"),
        ("runs list --kind poem", "invalid choice: 'poem'"),
        ("runs list --order random", "invalid choice: 'random'"),
    ],
)
def test_bad_input_is_one_clear_sentence_and_status_2(call, arguments, message):
    status, out, err = call(*arguments.split())
    assert (status, out) == (2, "")
    assert message in err
    assert err.strip().count("\n") == 0
