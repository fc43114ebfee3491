"""The Runs tab without a browser: find, open, compare, delete and import runs of every kind."""

import json
import sqlite3
from dataclasses import replace

import pytest

from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.page.host import Host
from workbench.page.layout import build
from workbench.runs.record import Run
from workbench.runs.store import id_of, recorded


@pytest.fixture
def host(house) -> Host:
    for kept in house[0].store.list():
        house[0].store.delete(kept.id)
    return house[0]


@pytest.fixture
def visitor(host, house) -> Visitor:
    return Visitor(house[1])


def listed(visitor: Visitor) -> list[dict]:
    visitor.open("Runs")
    return visitor.value("past-runs")["rows"]


def tick(visitor: Visitor, *ids: str, press: str | None = None) -> None:
    """Tick these runs alone, and press a button."""
    visitor.open("Runs")
    visitor.put("past-runs", {**visitor.value("past-runs"), "chosen": list(ids)})
    if press is not None:
        visitor.press(press)


def said(visitor: Visitor) -> str:
    assert visitor.breakdowns == []
    return visitor.value("runs-note") or ""


def keep(host: Host, *runs: Run) -> list[str]:
    for run in runs:
        host.store.save(run)
    return [run.id for run in runs]


def test_all_runs_are_listed_searched_and_sorted(host, visitor, run, batch_run):
    """Only the newest 100 were once listed, and nothing said so."""
    small = replace(run, results=run.results[:1])
    tales = [replace(small, id=f"a{i:x}", title=f"Tale {i}") for i in range(118)]
    keep(host, *tales, batch_run, run)
    assert len(listed(visitor)) == 120
    assert {row["kind"] for row in listed(visitor)} == {"comparison", "batch"}
    visitor.put("kind-of-runs", "batch")
    assert [row["id"] for row in listed(visitor)] == [batch_run.id]
    visitor.put("kind-of-runs", "all")
    visitor.put("search-runs", "tale 117")
    assert [row["title"] for row in listed(visitor)] == ["Tale 117"]
    visitor.put("search-runs", "tale")
    assert [row["title"] for row in listed(visitor)][:2] == ["Tale 117", "Tale 116"]


def test_an_empty_list_says_why(host, visitor, run):
    assert listed(visitor) == []
    assert "Press Run under Compare" in visitor.value("past-runs")["empty"]
    keep(host, run)
    visitor.put("search-runs", "nothing like this")
    says = "No run matches these words and this kind."
    assert visitor.value("past-runs") == {"rows": [], "empty": says}


def test_the_list_has_the_verdict_of_a_comparison_and_a_fate_for_each_token(host, visitor):
    story = recorded(id_of("story")).run
    keep(host, story)
    (row,) = [row for row in listed(visitor) if row["id"] == story.id]
    assert row["verdict"] == "Speculative: the same kind of text, 22 passes instead of 64."
    fates = row["fates"].split()
    assert len(fates) == 64
    assert {"accepted", "corrected", "bonus"} <= set(fates)


def test_a_run_opens_in_the_tab_of_its_kind(host, visitor, run, batch_run):
    keep(host, run, batch_run)
    for found, prefix in ((run, ""), (batch_run, "batch-")):
        tick(visitor, found.id, press="open-run")
        assert said(visitor) == ""
        assert f"?run={found.id}" in visitor.value(prefix + "run-link")


@pytest.mark.parametrize(
    ("button", "says"), [("open-run", "Tick one run"), ("compare-two", "Tick two runs")]
)
def test_the_wrong_number_of_ticks_is_one_sentence(visitor, button, says):
    for ids in ([], ["a", "b", "c"]):
        tick(visitor, *ids, press=button)
        assert says in said(visitor)


@pytest.mark.parametrize("table", [None, [], {"chosen": 5}, {"chosen": [["a"], {"b": 1}, None]}])
def test_a_client_may_send_anything_as_its_ticks(visitor, table):
    visitor.put("past-runs", table)
    for button in ("open-run", "compare-two", "delete-run"):
        visitor.press(button)
        assert "Traceback" not in said(visitor)


def test_two_runs_that_are_compared_have_names_of_their_own(host, visitor, run):
    """Both headings were a date and the prompt, and thus equal for two runs within a minute."""
    settings = {**run.settings, "seed": 5}
    other = replace(run, id="0b", study={**run.study, "settings": settings})
    tick(visitor, *keep(host, run, other), press="compare-two")
    heads = [head.partition("</h2>")[0] for head in visitor.value("compared").split("<h2>")[1:]]
    a, b = (head.partition(" · ")[2] for head in heads)
    assert a != b
    assert f"run {run.id}</a>" in a
    assert "seed 5" in b


def test_runs_of_two_kinds_are_not_compared(host, visitor, run, batch_run):
    tick(visitor, *keep(host, run, batch_run), press="compare-two")
    why = "One is a comparison, the other a batch: their figures count different things."
    assert f"{why} Tick two of the same kind." in said(visitor)
    assert not visitor.value("compared")


def test_runs_are_deleted_only_if_the_visitor_agreed(host, visitor, run, batch_run):
    keep(host, run, batch_run)
    tick(visitor, run.id, press="delete-run")  # without a word of the browser's: nobody agreed
    assert len(host.store.list()) == 2


@pytest.mark.parametrize("what", ["a zip", "a kind of no tab", "markup"])
def test_a_malformed_import_is_one_sentence_and_leaves_nothing(
    host, visitor, run, tmp_path, caplog, what
):
    """Imports were stored before they could be shown: they gave a 500 without a message and
    stayed."""
    data = run.to_json()
    if what == "markup":
        data["results"][0]["decoder"] = "<img src=x>"
    data["kind"] = "comparison" if what == "markup" else "experiment"
    file = tmp_path / "run.json"
    file.write_bytes(b"PK\x03\x04" if what == "a zip" else json.dumps(data).encode())
    visitor.give("import-run", file)
    assert said(visitor).startswith('<div role="alert">')
    assert said(visitor).count(".</div>") == 1
    assert "<img" not in said(visitor)
    assert host.store.list() == []
    assert caplog.records == []


def test_a_shared_machine_lists_nothing(pair, run, tmp_path):
    host = a_host(pair, tmp_path, public=True)
    keep(host, run)
    visitor = Visitor(build(host))
    visitor.open("Runs")
    assert not (visitor.value("past-runs") or {}).get("rows")
    for name in ("past-runs", "open-run", "compare-two", "delete-run"):
        assert not visitor.visible(name)


def test_on_a_shared_machine_nobody_deletes_by_a_made_up_call(pair, run, tmp_path):
    """The button is not shown there, but its handler did as it was told."""
    host = a_host(pair, tmp_path, public=True)
    keep(host, run)
    page = build(host)
    (delete,) = [fn for fn in page.fns.values() if fn.name == "_delete"]
    _, note = delete.fn({"rows": [], "chosen": [run.id]}, [run.id], "", "all")
    assert "On a shared machine" in note
    assert host.store.get(run.id) == run


def damage(host: Host, id: str, **columns: str) -> None:
    """Writes what is no run's into columns of its row."""
    with sqlite3.connect(host.store.path) as db:
        for column, value in columns.items():
            db.execute(f"UPDATE runs SET {column} = ? WHERE id = ?", (value, id))


def test_a_damaged_row_leaves_all_else_in_the_lists(host, visitor, run, batch_run):
    """One damaged row gave a 500 and a traceback in place of the list, in Runs and in Theory."""
    bad, sound = keep(host, run, batch_run)
    damage(host, bad, decoders="[half", json="half a ru")
    assert {row["id"]: row["kind"] for row in listed(visitor)} == {bad: "damaged", sound: "batch"}
    visitor.open("Theory")
    choices = [id for _, id in visitor.told(visitor.find("theory-run"), "choices")]
    assert (sound in choices, bad in choices) == (True, False)
    for ids, button in (([bad], "open-run"), ([bad, sound], "compare-two")):
        tick(visitor, *ids, press=button)
        assert f"The run {bad} cannot be read, only deleted." in said(visitor)
    tick(visitor, sound, press="open-run")
    assert said(visitor) == ""
    host.store.delete(bad)
    assert [row["id"] for row in listed(visitor)] == [sound]
