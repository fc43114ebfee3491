"""The Theory tab without a browser: every page at every corner of its sliders, with and without a run beside it."""

import itertools
from types import SimpleNamespace

import gradio as gr
import pytest

from workbench.page.tabs.theory import TheoryTab, draw, fault, rows
from workbench.runs.store import RunStore
from workbench.theory.estimates import Measured, measured
from workbench.theory.pages import PAGES


@pytest.fixture(scope="module")
def tab(tmp_path_factory, run):
    """A tab over a store that holds one run."""
    store = RunStore(tmp_path_factory.mktemp("runs") / "runs.sqlite")
    store.save(run)
    with gr.Blocks():
        return TheoryTab(SimpleNamespace(limits=SimpleNamespace(public=False), store=store))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.title)
def test_every_corner_of_the_sliders_draws(page, run):
    found = measured(run)
    extremes = [[s.low for s in page.sliders], [s.high for s in page.sliders]]
    for values, m in itertools.product(extremes, (Measured(), found)):
        words, *figures = draw(page, m, values)[: 1 + len(page.cards)]
        assert "nan" not in words
        assert all(figure.data for figure in figures)
        assert ("Measured" in words) == (m is found)


@pytest.mark.parametrize("value", [None, -0.1, 1.1])
def test_a_number_that_cannot_be_used_is_one_sentence(value):
    """An emptied box once gave "'<' not supported between instances of 'NoneType' and 'float'"."""
    values = [value, *(s.value for s in PAGES[0].sliders[1:])]
    assert fault(PAGES[0], values) == "acceptance α must be a number from 0 to 1; type one, or move the slider."


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.title)
def test_the_ends_of_every_slider_can_be_used(page):
    assert fault(page, [s.low for s in page.sliders]) is None
    assert fault(page, [s.high for s in page.sliders]) is None


def test_whole_sliders_stay_whole():
    """Gradio sends 5.0 where a slider of whole numbers stands at 5."""
    page = PAGES[0]
    assert draw(page, Measured(), [0.8, 5.0, 0.0, 0.0])[0] == draw(page, Measured(), [0.8, 5, 0.0, 0.0])[0]


def test_the_words_say_what_the_paper_says():
    words = draw(PAGES[0], Measured(), [0.8, 5, 0.0, 0.0])[0]
    assert "**3.69** tokens a round" in words
    assert "**1.63×** the operations" in words


def test_a_run_is_picked_by_its_id(tab, run):
    assert tab._pick(f" {run.id} ") == (measured(run), "")


def test_a_run_that_is_gone_is_one_sentence(tab):
    found, note = tab._pick("<b>")
    assert found == Measured()
    assert "There is no run" in note
    assert "<b>" not in note


def test_runs_are_listed_but_on_a_shared_machine(tab, run, monkeypatch):
    assert [id for _, id in tab._list()["choices"]] == ["", run.id]
    monkeypatch.setattr(tab.host.limits, "public", True)
    assert "choices" not in tab._list()


def test_cards_are_laid_out_evenly():
    assert [[len(r) for r in rows(range(n))] for n in range(1, 7)] == [[1], [2], [3], [2, 2], [3, 2], [3, 3]]
