"""The Draws tab and /draw without a browser."""

import json

import gradio as gr
import pytest

from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.page.layout import build

FEW = (
    "kind=draw&prompt=ab<b>&draws=12&decoders=multinomial,speculative"
    "&max_new_tokens=4&temperature=0.5"
)


@pytest.fixture
def visitor(house) -> Visitor:
    return Visitor(house[1], FEW)


def link(visitor: Visitor) -> str:
    """The link to the run on screen, and those to its files."""
    return visitor.value(visitor.find("draw-run-link"))


def test_a_link_fills_the_tab_and_draw_draws(house, visitor):
    assert visitor.value(visitor.find("draw-prompt")) == "ab<b>"
    assert "12 draws · 4 new tokens · Plain sampling, Speculative" in visitor.value(
        visitor.find("draw-asked")
    )
    assert "draws=12" in visitor.value(visitor.find("draw-settings-link"))
    visitor.press("draw-run")
    assert visitor.breakdowns == []
    assert "Done" in visitor.value(visitor.find("draw-progress"))
    [kept] = house[0].store.list(kind="draw")
    run = house[0].store.get(kept.id)
    assert [len(result.samples) for result in run.results] == [12, 12]
    assert "Plain sampling" in visitor.value(visitor.find("draw-headline"))
    assert visitor.value(visitor.find("draw-trees")).count("<section") == 2
    again = Visitor(house[1], f"run={run.id}")
    assert again.value(again.find("draw-trees")) == visitor.value(visitor.find("draw-trees"))
    assert again.value(again.find("draw-prompt")) == "ab<b>"


def test_draws_with_other_seeds_are_added_to_the_run_on_screen(house):
    """After an odd verdict nobody could add draws: a new run with another seed forgot the first."""
    visitor = Visitor(house[1], FEW)
    visitor.press("draw-run")
    (found,) = [s for s in house[0].store.list(kind="draw") if s.id in link(visitor)]
    assert visitor.visible(visitor.find("draw-more"))
    assert "All share seeds 0 to 11" in visitor.value(visitor.find("draw-headline"))
    for pressed, last in ((1, 23), (2, 47)):
        visitor.press("draw-more")
        assert visitor.breakdowns == []
        run = house[0].store.get(found.id)
        assert [r.seed for r in run.results] == [0, 0, 12, 12, 24, 24][: 2 * pressed + 2]
        assert f"All share seeds 0 to {last}" in visitor.value(visitor.find("draw-headline"))
        assert visitor.value(visitor.find("draw-trees")).count("<section") == 2
        assert f"{last + 1} draws" in visitor.value(visitor.find("draw-trees"))
    again = Visitor(house[1], f"run={found.id}")
    assert again.value(again.find("draw-headline")) == visitor.value(visitor.find("draw-headline"))
    again.press("draw-more")
    assert "All share seeds 0 to 95" in again.value(again.find("draw-headline"))


def test_what_cannot_be_added_is_said(house, visitor):
    visitor.press("draw-run")
    (found,) = [s for s in house[0].store.list(kind="draw") if s.id in link(visitor)]
    house[0].store.delete(found.id)
    visitor.press("draw-more")
    assert visitor.breakdowns == []
    assert "There is no run" in visitor.value(visitor.find("draw-progress"))


def test_draws_that_others_added_meanwhile_stay(house):
    """The study that adds draws was made at the click, of the run as it was then.

    What another tab had added by the time the device was free was saved over, and lost."""
    visitor = Visitor(house[1], FEW)
    visitor.press("draw-run")
    (found,) = [s for s in house[0].store.list(kind="draw") if s.id in link(visitor)]
    waiting = visitor.firing(visitor.find("draw-more"), "click")
    next(waiting)
    assert "Waiting for the device" in visitor.value(visitor.find("draw-progress"))
    Visitor(house[1], f"run={found.id}", "another tab").press("draw-more")
    for _ in waiting:
        pass
    assert visitor.breakdowns == []
    assert [r.seed for r in house[0].store.get(found.id).results] == [0, 0, 12, 12, 24, 24]
    assert "All share seeds 0 to 35" in visitor.value(visitor.find("draw-headline"))


def test_draws_that_were_added_are_not_measured_again(house, monkeypatch):
    """Each press added as many draws once more, with further seeds."""
    monkeypatch.setattr("workbench.page.runner.unsteady", lambda row: True)
    visitor = Visitor(house[1], FEW)
    visitor.press("draw-run")
    assert visitor.visible(visitor.find("draw-again"))
    visitor.press("draw-more")
    assert visitor.visible(visitor.find("draw-again")) is False


@pytest.mark.parametrize("until", ["Preparing the models", "Plain sampling (1 of 2)"])
def test_a_run_is_as_it_was_if_other_draws_are_stopped_before_the_first(house, until):
    """A complete run was called stopped, on the page and in the store.

    Its link and its downloads were gone, too."""
    visitor = Visitor(house[1], FEW.replace("max_new_tokens=4", "max_new_tokens=30"))
    visitor.press("draw-run")
    (found,) = [s for s in house[0].store.list(kind="draw") if s.id in link(visitor)]
    run, kept = house[0].store.get(found.id), visitor.find("draw-run-link").parent
    for _ in visitor.firing(visitor.find("draw-more"), "click"):
        if until in visitor.value(visitor.find("draw-progress")):
            visitor.press("draw-stop")
    assert visitor.breakdowns == []
    assert "Stopped · 0 results" in visitor.value(visitor.find("draw-progress"))
    assert house[0].store.get(found.id) == run
    assert "All share seeds 0 to 11" in visitor.value(visitor.find("draw-headline"))
    assert visitor.visible(kept)
    assert found.id in link(visitor)


def test_at_temperature_0_there_are_no_other_draws(house):
    visitor = Visitor(house[1], FEW.replace("temperature=0.5", "temperature=0"))
    visitor.press("draw-run")
    assert visitor.visible(visitor.find("draw-more")) is False


def test_faults_stand_at_their_fields(visitor):
    visitor.put("draw-prompt", "  ")
    visitor.press("draw-run")
    assert visitor.message("draw-prompt") == "The prompt is empty; write a few words."


def test_more_draws_than_a_public_place_allows_are_refused(pair, tmp_path):
    visitor = Visitor(build(a_host(pair, tmp_path, max_draws=11)), FEW)
    visitor.press("draw-run")
    assert (
        visitor.message("draw-prompt")
        == "At most 11 draws here; ask for fewer, or run it on your own machine."
    )


def test_the_endpoint_gives_the_run_and_what_it_says(house):
    draw = next(function.fn for function in house[1].fns.values() if function.api_name == "draw")
    *_, found = draw(
        "ab", ["multinomial", "mtad"], {"draws": 20, "max_new_tokens": 4, "temperature": 0.5}
    )
    assert [len(result["samples"]) for result in found["results"]] == [20, 20]
    assert [each["compared"] for each in found["findings"]] == ["target", "own"]
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ab", ["multinomial"], {"draws": 5}), "draws must be"),
        (("ab", ["multinomial"], {"draws": "many"}), "draws must be"),
        (("", ["multinomial"], {}), "The prompt is empty"),
        (("ab", ["multinomia"], {}), "multinomial"),
        (("ab", ["multinomial"], [1]), "one JSON object"),
        (("ab", 7, None), "`decoders` must be a list"),
        (([], None, None), "The prompt is empty"),
    ],
)
def test_whatever_a_program_sends_is_one_sentence_at_worst(house, arguments, says):
    draw = next(function.fn for function in house[1].fns.values() if function.api_name == "draw")
    with pytest.raises(gr.Error, match=says):
        list(draw(*arguments))
