"""The Theory tab without a browser: every page at every corner of its sliders. With and without a
run beside it."""

import itertools
import re

import gradio as gr
import pytest

from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.page.theory import TheoryTab, draw, fault
from workbench.runs.store import recordings
from workbench.theory import PAGES
from workbench.theory.estimates import Measurements, measured
from workbench.theory.page import Choice
from workbench.theory.papers import FIRST
from workbench.theory.rules import RULES


@pytest.fixture(scope="module")
def host(pair, tmp_path_factory, run):
    """A host that keeps one run."""
    host = a_host(pair, tmp_path_factory.mktemp("runs"))
    host.store.save(run)
    return host


def visitor_of(host) -> Visitor:
    """A visitor of a page that has this tab alone."""
    with gr.Blocks() as page:
        tab = TheoryTab(host)
    visitor = Visitor(page)
    visitor.fire(tab.tab, "select")
    return visitor


@pytest.fixture
def visitor(host) -> Visitor:
    return visitor_of(host)


@pytest.mark.parametrize("page", [FIRST, *PAGES], ids=lambda p: p.title)
def test_every_corner_of_the_sliders_draws(page, run):
    found = measured(run)
    picked = [list(field.options()) for field in page.fields if isinstance(field, Choice)]
    sliders = page.fields[len(picked) :]
    extremes = [
        [*chosen, *(getattr(s, end) for s in sliders)]
        for chosen in itertools.product(*picked)
        for end in ("low", "high")
    ]
    for values, m in itertools.product(extremes, (Measurements(), found)):
        words, figure = draw(page, m, values)
        assert "nan" not in words
        assert figure.data
        assert ("Measured" in words) == (m is found)


@pytest.mark.parametrize("value", [None, -0.1, 1.1])
def test_a_number_that_cannot_be_used_is_one_sentence(value):
    """An emptied box once gave "'<' not supported between instances of 'NoneType' and 'float'"."""
    values = [value, *(s.value for s in PAGES[0].fields[1:])]
    says = "acceptance α must be a number from 0 to 1; type one, or move the slider."
    assert fault(PAGES[0], values) == says


def test_a_part_of_a_token_is_no_draft_length():
    """The box kept 2.5, and the figures were those of 2."""
    values = [s.value for s in PAGES[0].fields]
    places = [i for i, s in enumerate(PAGES[0].fields) if s.name == "gamma"]
    says = "draft length γ must be a whole number from 1 to 32; type one, or move the slider."
    assert fault(PAGES[0], [2.5 if i in places else x for i, x in enumerate(values)]) == says
    assert fault(PAGES[0], [2.0 if i in places else x for i, x in enumerate(values)]) is None


def test_the_page_of_rules_says_which_are_lossless_and_what_they_keep():
    """The example of block verification's paper: 10/9 against 11/9 of two tokens."""
    values = [s.value for s in RULES.fields[1:]]
    rules = RULES.fields[0].options()
    said = {rule: draw(RULES, Measurements(), [rule, *values])[0] for rule in rules}
    assert "exactly the target’s distribution here · keeps **1.222** of 2" in said["block"]
    assert "exactly the target’s distribution here · keeps **1.111** of 2" in said["speculative"]
    assert "total variation from the target’s distribution **0." in said["typical"]
    assert all("a lossless rule at most **1.222**" in words for words in said.values())
    for words in said.values():
        if "exactly the target’s distribution" in words:
            kept, most = map(float, re.findall(r"(?:keeps|at most) \*\*([\d.]+)\*\*", words))
            assert kept <= most


def noted(visitor) -> str:
    return visitor.value("theory-note")


def test_a_run_is_picked_by_its_id(visitor, run):
    visitor.put("theory-run", f" {run.id} ")
    assert noted(visitor) == ""
    told = sum("**Measured:**" in str(visitor.value(block)) for block in texts(visitor))
    assert told == 1 + len(PAGES)  # with the opening picture
    visitor.put("theory-run", "")
    assert not any("**Measured:**" in str(visitor.value(block)) for block in texts(visitor))


def texts(visitor):
    return [block for block in visitor.page.blocks.values() if isinstance(block, gr.Markdown)]


def test_a_run_that_is_gone_is_one_sentence(visitor):
    visitor.put("theory-run", "<b>")
    assert "There is no run" in noted(visitor)
    assert "<b>" not in noted(visitor)


def test_runs_are_listed_but_on_a_shared_machine(visitor, pair, run, tmp_path):
    field = visitor.find("theory-run")
    found = visitor.told(field, "choices")
    assert [id for _, id in found] == ["", *(each.run.id for each in recordings()), run.id]
    assert "Beam search" in found[-1][0]  # once the ids of the catalog, "beam_search"
    stranger = visitor_of(a_host(pair, tmp_path, public=True))
    assert stranger.told("theory-run", "choices") is None
