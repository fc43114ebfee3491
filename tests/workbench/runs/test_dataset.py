"""Runs in a dataset of the hub, of which a stand-in answers on this machine."""

import dataclasses
from pathlib import Path

import pytest

from decoders import InputError
from tests.hub import TOKEN, standing_in
from workbench.runs.store import Dataset, RunStore

NEVER = 10_000.0  # minutes; a test uploads when it wants to


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with standing_in() as hub:
        yield hub


@pytest.fixture
def opened(hub):
    """Makes a store in a folder, as a Space does when it starts."""
    datasets = []

    def store(folder: Path) -> RunStore:
        found = RunStore(folder / "runs.sqlite")
        found.dataset = Dataset("me/runs", folder / "up", TOKEN, NEVER, hub.address)
        upload(found)  # after that of the start: nothing is on its way
        datasets.append(found.dataset)
        return found

    yield store
    for dataset in datasets:
        dataset.uploads.stop()


def upload(store: RunStore) -> None:
    store.dataset.uploads.trigger().result()


def test_a_run_outlives_the_disk_and_its_link_opens_it(hub, opened, tmp_path, run):
    """Each restart of a Space forgot all runs, and their links led nowhere."""
    store = opened(tmp_path / "first")
    store.save(run)
    upload(store)
    assert [*hub.files["me/runs"]] == [f"runs/{run.id}.json"]
    assert hub.private["me/runs"]
    again = opened(tmp_path / "second")  # nothing of the first disk is there
    assert again.get(run.id) == run
    assert again.has(run.id)
    assert not again.has("abc")


def test_what_was_not_uploaded_waits_and_comes_with_the_next_attempt(hub, opened, tmp_path, run):
    store = opened(tmp_path)
    hub.down = True
    store.save(run)
    with pytest.raises(Exception, match="503"):
        upload(store)
    store.dataset.uploads.stop()  # the process ends
    hub.down = False
    assert not hub.files["me/runs"]
    upload(opened(tmp_path))
    assert [*hub.files["me/runs"]] == [f"runs/{run.id}.json"]


def test_many_runs_are_one_commit_and_a_changed_one_replaces_itself(hub, opened, tmp_path, run):
    store = opened(tmp_path)
    for i in range(5):
        store.save(dataclasses.replace(run, id=f"a{i}"))
    before = hub.commits
    upload(store)
    assert hub.commits == before + 1
    assert len(hub.files["me/runs"]) == 5
    upload(store)  # nothing is new
    assert hub.commits == before + 1
    store.save(dataclasses.replace(run, id="a1", title="another"))
    upload(store)
    assert opened(tmp_path / "second").get("a1").title == "another"


def test_a_deleted_run_is_gone_there_too(hub, opened, tmp_path, run):
    store = opened(tmp_path)
    store.save(run)
    upload(store)
    store.delete(run.id)
    assert not hub.files["me/runs"]
    with pytest.raises(InputError, match="There is no run"):
        store.get(run.id)
    store.save(run)
    store.delete(run.id)  # before it was uploaded
    upload(store)
    assert not hub.files["me/runs"]


@pytest.mark.parametrize("id", ["../../etc/passwd", "a/b", "", "A1", "a" * 65, "%2e%2e"])
def test_an_id_is_never_a_path(hub, opened, tmp_path, id):
    store = opened(tmp_path)
    hub.files["me/runs"]["runs/secret.json"] = b"{}"
    with pytest.raises(InputError, match="There is no run"):
        store.get(id)


def test_each_fault_is_one_sentence(hub, opened, tmp_path, run):
    assert Dataset.from_environment(tmp_path, {}) is None
    for environ, says in (
        ({"WORKBENCH_RUNS": "runs"}, "must name a dataset as USER/NAME, not 'runs'."),
        ({"WORKBENCH_RUNS": "me/runs"}, "needs the secret HF_TOKEN"),
    ):
        with pytest.raises(InputError, match=says):
            Dataset.from_environment(tmp_path, environ)
    with pytest.raises(InputError, match="me/runs of WORKBENCH_RUNS cannot be used") as refused:
        Dataset("me/runs", tmp_path / "up", "hf_wrong", NEVER, hub.address)
    assert "hf_wrong" not in str(refused.value)
    # nothing listens there, which ended in a traceback: the error was no longer one of httpx
    with pytest.raises(InputError, match="me/runs of WORKBENCH_RUNS cannot be used"):
        Dataset("me/runs", tmp_path / "up", TOKEN, NEVER, "http://127.0.0.1:9")
    store = opened(tmp_path)
    hub.down = True
    with pytest.raises(InputError, match="the dataset me/runs does not answer"):
        store.get(run.id)
    hub.down = False
    (store.dataset.folder / f"{run.id}.json").mkdir()  # as unusable as a full disk
    with pytest.raises(InputError, match=r"cannot wait in .* for its upload"):
        store.save(run)
    store = opened(tmp_path / "second")
    hub.files["me/runs"][f"runs/{run.id}.json"] = b"not json"
    with pytest.raises(InputError):
        store.get(run.id)
