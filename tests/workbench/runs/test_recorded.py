"""Runs recorded beforehand."""

from dataclasses import replace

import pytest

from decoders import InputError
from workbench.runs.recorded import Recording, id_of, recorded, recordings
from workbench.runs.store import RunStore


def test_what_was_written_comes_back(run):
    found = Recording("<b>", "é 🦊", "00", run)
    assert Recording.from_json(found.to_json()) == found


def test_ids_stay_when_runs_are_recorded_again():
    assert id_of("story") == id_of("story") != id_of("refrain")
    assert recordings()[0].run.id == id_of("story")


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
