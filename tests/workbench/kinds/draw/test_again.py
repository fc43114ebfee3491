"""More draws for a past run: the next seeds, runs that cannot grow, and older versions."""

from dataclasses import replace
from pathlib import Path

import pytest

from decoders import InputError
from workbench.kinds.draw import again
from workbench.runs.draws import findings, seeds
from workbench.runs.events import pooled
from workbench.runs.record import Run
from workbench.runs.recorded import recordings

OLD = Path(__file__).parents[2] / "runs" / "version2" / "draw.json"  # written at b2b7125


def test_as_many_are_drawn_as_there_are_with_the_seeds_after_them(draw_run):
    study = again(draw_run)
    assert (study.draws, study.settings.seed) == (20, 20)
    assert study.settings.methods == again(draw_run, draws=500).settings.methods
    assert again(draw_run, draws=500).draws == 500
    assert again(draw_run, most=15).draws == 15
    more = replace(draw_run, results=[replace(result, seed=20) for result in draw_run.results])
    both = pooled(draw_run, more)
    assert again(both).draws == 40
    assert again(both).settings.seed == 40
    assert {result.repeat for result in both.results} == {0, 1}
    assert [each.texts for each in findings(both)] == [40, 40, 40]
    assert seeds(both.results) == [range(40)]


def test_seeds_that_were_left_out_are_told():
    run = Run.from_json(OLD.read_bytes())
    later = replace(run, results=[replace(result, seed=100) for result in run.results])
    assert seeds(pooled(run, later).results) == [range(40), range(100, 140)]


def test_a_run_of_an_older_version_opens_and_can_be_added_to():
    """It knows fewer prefixes: those that its 40 draws were expected to begin with five times.

    The larger run knows more."""
    run = Run.from_json(OLD.read_bytes())
    assert [each.texts for each in findings(run)] == [40, 40]
    finer = replace(
        run, exact=[*run.exact, *(replace(each, tokens=[10**6]) for each in run.exact[:1])]
    )
    assert pooled(run, finer).exact == finer.exact
    assert pooled(finer, run).exact == finer.exact
    assert again(run).settings.seed == 40


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda run: replace(run, kind="comparison"), "Only a run of draws"),
        (lambda run: replace(run, results=[]), "Only a run of draws"),
        (
            lambda run: replace(
                run, study={**run.study, "settings": {**run.study["settings"], "temperature": 0.0}}
            ),
            "At temperature 0 every seed writes the same text",
        ),
        (
            lambda run: replace(run, results=[replace(r, seed=2**32) for r in run.results]),
            "seed must be",
        ),
    ],
)
def test_what_cannot_be_added_to_is_one_sentence(draw_run, change, says):
    with pytest.raises(InputError, match=says):
        again(change(draw_run))


def test_a_run_never_outgrows_what_can_be_read_back(draw_run):
    largest = 3 * len(draw_run.dumps())
    assert again(draw_run, largest=largest).draws == 20
    with pytest.raises(InputError, match="draw fewer, or begin a new run"):
        again(draw_run, draws=50, largest=largest)


@pytest.mark.parametrize("draws", [5, 1001, "many", True])
def test_how_many_are_added_is_checked(draw_run, draws):
    with pytest.raises(InputError, match="draws must be"):
        again(draw_run, draws=draws)


def test_a_recorded_run_is_not_added_to():
    """The draws were kept under the id of the recorded run, where nobody could open them."""
    run = next(each.run for each in recordings() if each.run.kind == "draw")
    with pytest.raises(InputError, match="stays as it is: press Draw for one of your own"):
        again(run)
