"""An experiment runs, stops and resumes; a failure is a row."""

import pytest

from decoders import InputError
from tests.workbench.experiments.conftest import PLAN
from workbench.experiments import driver
from workbench.experiments.driver import Background
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.models.presets import PairChoice
from workbench.studies.study import Limits


def finished(experiment, journal, crew, **options):
    *_, last = driver.run(experiment, journal, crew, **options)
    return last


def test_every_cell_has_a_row_for_every_item(prepared, journal, crew):
    experiment = prepared()
    last = finished(experiment, journal, crew)
    kept = journal.cells(experiment.id)
    assert (last.done, last.total, last.failed, last.running) == (5, 5, 0, False)
    assert [(k.part, k.label, len(k.rows)) for k in kept] == [
        ("timed", "greedy", 3), ("timed", "speculative", 3), ("timed", "mtad threshold=0.1", 3),
        ("timed", "mtad threshold=0.9", 3), ("quality", "multinomial", 2),
    ]  # fmt: skip
    for row in (row for k in kept for row in k.rows.values()):
        (output,) = row.samples
        assert len(output.ids) == row.metrics["new_tokens"] > 0
        assert row.metrics["perplexity"] > 1
        assert sum(output.gained) == len(output.ids)
        assert row.energy.source.startswith("not measured")


def test_a_journal_that_cannot_be_written_ends_it_with_its_sentence(prepared, journal, crew):
    class Full(Journal):
        def commit(self, *row):
            if self.progress(experiment.id).done:
                raise InputError("Experiments cannot be kept: the disk is full.")
            return super().commit(*row)

    experiment = prepared()
    with pytest.raises(InputError, match="the disk is full"):
        list(driver.run(experiment, Full(journal.path), crew))
    now = journal.progress(experiment.id)
    assert (1 <= now.done < 5, now.running) == (True, False)


def test_quantised_weights_make_another_experiment_which_is_resumed_with_them(
    prepared, journal, crew
):
    """A plan on int8 weights had the ids of the same plan on plain ones, so that rows of either
    counted as done for the other, and Resume loaded plain weights."""
    plain, int8 = (prepared(choice=PairChoice(quantization=kind)) for kind in (None, "int8"))
    assert prepared().id == plain.id
    ids = [{id for block in each.blocks for id in block.ids} for each in (plain, int8)]
    assert not ids[0] & ids[1]
    assert int8.id != plain.id
    finished(int8, journal, crew)
    again, _ = journal.experiment(int8.id)
    assert again.choice.quantization == "int8"
    assert driver.prepare(again, crew).id == int8.id


def test_an_experiment_runs_from_the_moment_that_it_can_be_seen(prepared, journal, crew):
    """The page said "Stopped; Resume does the rest" of an experiment that had just started."""
    seen = []

    class Look(Journal):
        def begin(self, id, *rest):
            super().begin(id, *rest)
            seen.append(self.progress(id).running)

    finished(prepared(limit=1), Look(journal.path), crew)
    assert seen == [True]


@pytest.fixture
def make(device, journal):
    return lambda **limits: Background(device, journal, Limits(**limits))


REQUEST = ExperimentRequest(PLAN, "small.toml")


def test_it_runs_to_its_end_and_says_how_far_it_is(make, journal):
    background = make()
    background.start(REQUEST)
    with pytest.raises(InputError, match="is running here already"):
        background.start(REQUEST)
    assert "loading the models" in background.says(None) or background.id
    background.thread.join()
    now = journal.progress(background.id)
    assert (now.done, now.total, background.running, background.fault) == (5, 5, False, "")
    assert background.says(now) == "Small: 5 of 5 items done"


def test_a_shared_machine_runs_none(make):
    with pytest.raises(InputError, match="No plan runs on a shared machine"):
        make(public=True).start(REQUEST)
