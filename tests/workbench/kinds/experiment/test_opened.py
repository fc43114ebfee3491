"""A prompt of an experiment as a run."""

from tests.workbench.conftest import finished
from workbench.experiments import driver
from workbench.kinds.comparison import Comparison
from workbench.kinds.experiment.form import as_run, prompts

PLAN = """
[[part]]
limit = 3
timings = 2
seeds = [0, 7]
max_new_tokens = 8
decoders = ["multinomial", "speculative"]
"""


def test_a_prompt_states_the_settings_it_was_decoded_with_so_that_it_can_be_run_again(
    prepared, journal, crew, pair, unmetered
):
    """Every prompt but the first had the seed of the first, and so another text when run again.

    It stated three timings, and there was one."""
    experiment = prepared(PLAN)
    *_, last = driver.run(experiment, journal, crew)
    assert (last.done, last.failed) == (12, 0)
    for cell in journal.cells(experiment.id):
        assert prompts(cell) == [0, 1, 2]
        for prompt in prompts(cell):
            run = as_run(journal, experiment.id, cell.part, cell.cell, prompt)
            assert run.settings["seed"] == cell.spec["seed"] + prompt
            assert [r.seed for r in run.results] == [run.settings["seed"]] * 3
            assert run.settings["timings"] == 1
            assert [len(r.laps) for r in run.results] == [1] * 3
            again = finished(pair, Comparison.from_json(run.study), unmetered)
            assert [r.alone.text for r in again.results] == [r.alone.text for r in run.results]
