"""Draws: the same prompt many times, each with the next seed."""

from dataclasses import replace
from pathlib import Path

import pytest

from decoders import InputError
from tests.workbench.page.visitor import Visitor
from workbench.kinds.draw import MOST_AT_ONCE, Draw, again
from workbench.runs.draws import findings
from workbench.runs.events import pooled
from workbench.runs.record import Run
from workbench.runs.store import recordings
from workbench.studies.study import MOST, Limits


def draw(draws: int = 100, **shared) -> Draw:
    data = {"decoders": ["multinomial", "dsbd"], "draws": draws, **shared}
    return Draw.from_json({"prompt": "é 🦊 &\n", "settings": data})


@pytest.mark.parametrize("draws", [10, 64, 65, 97, 100, 1000])
def test_batches_are_small_enough_to_stop_and_hardly_draw_twice(draws):
    """The last batch of a job is filled up from the start. A batch of 64 would have drawn 28 of 100
    texts twice."""
    job, _ = draw(draws).jobs()
    assert job.batch_size <= MOST_AT_ONCE
    batches = -(-draws // job.batch_size)
    assert 0 <= batches * job.batch_size - draws < batches
    assert (job.keep, job.scheme, job.max_cache_bytes) == ("text", "dynamic", 512_000_000)


def test_a_public_place_limits_the_draws_and_not_the_prompts():
    limits = Limits.from_environment({"SYSTEM": "spaces"})
    limits.check(draw(MOST["draws"]))
    with pytest.raises(InputError, match=f"At most {MOST['draws']} draws"):
        limits.check(draw(MOST["draws"] + 1))
    Limits().check(draw(1000))


OLD = Path(__file__).parents[1] / "runs" / "version2" / "draw.json"  # written at b2b7125


def test_a_run_of_an_older_version_opens_and_can_be_added_to():
    """It knows fewer prefixes: those that its 40 draws were expected to begin with five times. The
    larger run knows more."""
    run = Run.from_json(OLD.read_bytes())
    assert [each.texts for each in findings(run)] == [40, 40]
    finer = replace(run, exact=[*run.exact, replace(run.exact[0], tokens=[10**6])])
    assert pooled(run, finer).exact == finer.exact
    assert pooled(finer, run).exact == finer.exact
    assert again(run).settings.seed == 40


@pytest.mark.parametrize(("change", "says"), [
    (lambda run: replace(run, kind="comparison"), "Only a run of draws"),
    (lambda run: replace(run, results=[]), "Only a run of draws"),
    (lambda run: replace(run, study={**run.study, "settings": {**run.settings, "temperature": 0}}),
        "At temperature 0 every seed writes the same text"),
    (lambda run: replace(run, results=[replace(r, seed=2**32) for r in run.results]),
        "seed must be"),
])  # fmt: skip
def test_what_cannot_be_added_to_is_one_sentence(draw_run, change, says):
    with pytest.raises(InputError, match=says):
        again(change(draw_run))


def test_a_recorded_run_is_not_added_to():
    """The draws were kept under the id of the recorded run, where nobody could open them."""
    run = next(each.run for each in recordings() if each.run.kind == "draw")
    with pytest.raises(InputError, match="stays as it is: press Draw for one of your own"):
        again(run)


FEW = (
    "kind=draw&prompt=ab<b>&draws=12&decoders=multinomial,speculative"
    "&max_new_tokens=4&temperature=0.5"
)


def link(visitor: Visitor) -> str:
    """The link to the run on screen, and those to its files."""
    return visitor.value("draw-run-link")


def drawn(house, asked: str = FEW) -> tuple[Visitor, str]:
    """A visitor who has pressed Draw, and the id of the run."""
    visitor = Visitor(house[1], asked)
    visitor.press("draw-run")
    (found,) = [s for s in house[0].store.list(kind="draw") if s.id in link(visitor)]
    return visitor, found.id


def test_a_link_fills_the_tab_and_draw_draws(house):
    visitor = Visitor(house[1], FEW)
    assert visitor.value("draw-prompt") == "ab<b>"
    assert "12 draws · 4 new tokens · Plain sampling, Speculative" in visitor.value("draw-asked")
    assert "draws=12" in visitor.value("draw-settings-link")
    visitor.press("draw-run")
    assert visitor.breakdowns == []
    assert "Done" in visitor.value("draw-progress")
    [kept] = house[0].store.list(kind="draw")
    run = house[0].store.get(kept.id)
    assert [len(result.samples) for result in run.results] == [12, 12]
    assert "Plain sampling" in visitor.value("draw-headline")
    assert visitor.value("draw-trees").count("<section") == 2
    again = Visitor(house[1], f"run={run.id}")
    assert again.value("draw-trees") == visitor.value("draw-trees")
    assert again.value("draw-prompt") == "ab<b>"


def test_draws_with_other_seeds_are_added_to_the_run_on_screen(house):
    """After an odd verdict nobody could add draws: a new run with another seed forgot the first."""
    visitor, id = drawn(house)
    assert visitor.visible("draw-more")
    assert "Seeds 0 to 11" in visitor.value("draw-headline")
    for pressed, last in ((1, 23), (2, 47)):
        visitor.press("draw-more")
        assert visitor.breakdowns == []
        run = house[0].store.get(id)
        assert [r.seed for r in run.results] == [0, 0, 12, 12, 24, 24][: 2 * pressed + 2]
        assert f"Seeds 0 to {last}" in visitor.value("draw-headline")
        assert visitor.value("draw-trees").count("<section") == 2
        assert f"{last + 1} draws" in visitor.value("draw-trees")
    again = Visitor(house[1], f"run={id}")
    assert again.value("draw-headline") == visitor.value("draw-headline")
    again.press("draw-more")
    assert "Seeds 0 to 95" in again.value("draw-headline")


def test_draws_that_others_added_meanwhile_stay(house):
    """The study that adds draws was made at the click, of the run as it was then. What another tab
    had added by the time the device was free was saved over, and lost."""
    visitor, id = drawn(house)
    waiting = visitor.firing("draw-more", "click")
    next(waiting)
    assert "Waiting for the device" in visitor.value("draw-progress")
    Visitor(house[1], f"run={id}", "another tab").press("draw-more")
    for _ in waiting:
        pass
    assert visitor.breakdowns == []
    assert [r.seed for r in house[0].store.get(id).results] == [0, 0, 12, 12, 24, 24]
    assert "Seeds 0 to 35" in visitor.value("draw-headline")


def test_draws_that_were_added_are_not_measured_again(house, monkeypatch):
    """Each press added as many draws once more, with further seeds."""
    monkeypatch.setattr("workbench.page.runner.unsteady", lambda row: True)
    visitor, _ = drawn(house)
    assert visitor.visible("draw-again")
    visitor.press("draw-more")
    assert visitor.visible("draw-again") is False


@pytest.mark.parametrize("until", ["Preparing the models", "Plain sampling (1 of 2)"])
def test_a_run_is_as_it_was_if_other_draws_are_stopped_before_the_first(house, until):
    """A complete run was called stopped, on the page and in the store. Its link and its downloads
    were gone, too."""
    visitor, id = drawn(house, FEW.replace("max_new_tokens=4", "max_new_tokens=30"))
    run, kept = house[0].store.get(id), visitor.find("draw-run-link").parent
    for _ in visitor.firing("draw-more", "click"):
        if until in visitor.value("draw-progress"):
            visitor.press("draw-stop")
    assert visitor.breakdowns == []
    assert "Stopped · 0 results" in visitor.value("draw-progress")
    assert house[0].store.get(id) == run
    assert "Seeds 0 to 11" in visitor.value("draw-headline")
    assert visitor.visible(kept)
    assert id in link(visitor)


def test_a_run_never_outgrows_what_can_be_read_back(draw_run):
    largest = 3 * len(draw_run.dumps())
    assert again(draw_run, largest=largest).draws == 20
    with pytest.raises(InputError, match="draw fewer, or begin a new run"):
        again(draw_run, draws=50, largest=largest)
