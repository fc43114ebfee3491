"""Batches measured beforehand come back as written, and the shipped ones can be read."""

from dataclasses import replace

from workbench.runs import shipped as shipped_module
from workbench.runs.estimates import BatchFigures
from workbench.runs.shipped import Measured, shipped


def test_what_was_written_comes_back(batch_run, tmp_path, monkeypatch):
    found = Measured("python -m tools.batch --sizes 1 2", (0.5, 0.25, 0.1), (batch_run,))
    monkeypatch.setattr(shipped_module, "SHIPPED", tmp_path / "measured.json")
    assert shipped() is None
    (tmp_path / "measured.json").write_text(found.to_json(), encoding="utf-8")
    assert shipped() == found
    hostile = replace(found, command="é 🦊\n")
    assert Measured.from_json(hostile.to_json()) == hostile


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
