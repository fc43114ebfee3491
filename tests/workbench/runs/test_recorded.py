"""Runs and batches measured beforehand come back as written, and the shipped ones can be read."""

from dataclasses import replace

import pytest

from decoders import InputError
from workbench.runs.figures import BatchFigures
from workbench.runs.recorded import BatchRecording, Recording, id_of, recorded, recordings, shipped
from workbench.runs.store import RunStore


def test_what_was_written_comes_back(run):
    found = Recording("<b>", "é 🦊", "00", run)
    assert Recording.from_json(found.to_json()) == found


def test_ids_stay_when_runs_are_recorded_again():
    assert id_of("fox") == id_of("fox") != id_of("story")
    assert recordings()[0].run.id == id_of("fox")
    assert recorded(id_of("story")) == recordings()[-1]


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


def test_batches_that_were_written_come_back(batch_run, tmp_path):
    found = BatchRecording("python -m tools.batch --sizes 1 2", (0.5, 0.25, 0.1), (batch_run,))
    file = tmp_path / "measured.json"
    assert shipped(file) is None
    file.write_text(found.to_json(), encoding="utf-8")
    assert shipped(file) == found
    hostile = replace(found, command="é 🦊\n")
    assert BatchRecording.from_json(hostile.to_json()) == hostile


def test_what_is_shipped_has_the_paper_s_schemes_at_every_size():
    """It was written by version 1, whose batches have neither format nor id."""
    for run in shipped().runs:
        figures = BatchFigures(run)
        assert len(figures.sizes) > 2
        for decoder in figures.decoders:
            assert figures.schemes(decoder) == [
                "vanilla",
                "unpadded_kv",
                "unpadded_inputs",
                "unpadded",
                "dynamic",
            ]
            for size in figures.sizes:
                assert figures.times_greedy(decoder, size, "unpadded", decoding=True) > 0
                assert (
                    1
                    <= figures.least_acceptance(decoder, size)
                    <= max(figures.mean_acceptances(decoder))
                )
