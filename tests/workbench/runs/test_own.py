"""A visitor's own runs, in a dataset of a stand-in of the hub."""

import dataclasses
import threading

import pytest

from decoders import InputError
from tests.hub import standing_in
from workbench.runs.own import OwnRuns
from workbench.runs.record import Run

ANNA, BERT = ("anna", "hf_anna"), ("bert", "hf_bert")
NOBODY = "http://127.0.0.1:9"  # where nothing listens


@pytest.fixture
def hub():
    with standing_in() as hub:
        hub.accounts = {token: owner for owner, token in (ANNA, BERT)}
        yield hub


def test_runs_are_kept_found_and_listed(hub, run):
    own = OwnRuns(*ANNA, hub.address)
    assert own.list() == []
    assert own.find(run.id) is None
    own.keep(run)
    own.keep(dataclasses.replace(run, id="a1", title="<b>Another: tale</b>"))
    own.keep(run)  # once more, which replaces it
    assert hub.private["anna/decoding-workbench-runs"]
    assert Run.from_json(own.find(run.id)) == run
    assert {(each.id, each.kind, each.title) for each in own.list()} == {
        (run.id, run.kind, run.title),
        ("a1", run.kind, "<b>Another: tale</b>"),
    }
    assert all(each.created for each in own.list())


def test_they_are_nobody_elses(hub, run):
    OwnRuns(*ANNA, hub.address).keep(run)
    assert OwnRuns(*BERT, hub.address).find(run.id) is None
    assert OwnRuns(*BERT, hub.address).list() == []


@pytest.mark.parametrize("fault", ["down", "away", "expired"])
def test_each_fault_is_one_sentence(hub, run, fault):
    """A hub that nobody could reach ended in a traceback: its errors were no longer httpx's."""
    hub.down = fault == "down"
    if fault == "expired":
        hub.accounts = {}
    own = OwnRuns(*ANNA, NOBODY if fault == "away" else hub.address)
    for call, says in (
        (lambda: own.keep(run), "could not be kept in your dataset anna/decoding-workbench-runs"),
        (own.list, None if fault == "expired" else "Your dataset anna/decoding-workbench-runs"),
        (lambda: own.find(run.id), None if fault == "expired" else "does not answer"),
    ):
        if says is None:  # the hub says of a repository of others that it is not there
            continue
        with pytest.raises(InputError, match=says) as refused:
            call()
        assert "hf_anna" not in str(refused.value)
        assert str(refused.value).endswith(".")


def test_other_files_there_are_not_listed_and_large_ones_not_read(hub, run, monkeypatch):
    own = OwnRuns(*ANNA, hub.address)
    own.keep(run)
    for name in ("notes", "../x", "A1"):
        hub.files[own.name][f"runs/{name}.json"] = b"{}"
        hub.titles[f"runs/{name}.json"] = "mine"
        assert own.find(name) is None
    assert [each.id for each in own.list()] == [run.id]
    monkeypatch.setattr("workbench.runs.dataset.LARGEST_FILE", 100)
    with pytest.raises(InputError, match="is too large to open"):
        own.find(run.id)


def test_a_hub_that_never_answers_is_not_waited_for(hub, run, monkeypatch):
    monkeypatch.setattr("workbench.runs.own.SECONDS", 0.2)
    own, ended = OwnRuns(*ANNA, hub.address), threading.Event()

    def silent(*_, **__):
        ended.wait(30)
        raise OSError("nobody answered")

    monkeypatch.setattr(own.hub, "create_repo", silent)
    with pytest.raises(InputError, match="could not be kept in your dataset"):
        own.keep(run)
    ended.set()
