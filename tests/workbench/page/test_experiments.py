"""The Experiments tab without a browser: run, look, stop, resume, what a second visitor sees, and what is refused."""

import time

import gradio as gr
import pytest

from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.models.presets import PairChoice
from workbench.page.host import Host
from workbench.page.tabs.experiments import ExperimentsTab

PLAN = 'title = "Mine <b>"\n[[part]]\nlimit = 2\nmax_new_tokens = 6\ndecoders = ["speculative"]\n[[draw]]\nkind = "front"\npart = "part 1"\nx = "tokens/s"\ny = ["perplexity"]\n'


def served(host: Host) -> gr.Blocks:
    """A page that has this tab alone."""
    with gr.Blocks() as page:
        ExperimentsTab(host, gr.State(PairChoice()))
    return page


@pytest.fixture
def page(host, monkeypatch) -> gr.Blocks:
    monkeypatch.setattr("workbench.experiments.bench.IDLE_SECONDS", 0.01)
    return served(host)


@pytest.fixture
def visitor(page) -> Visitor:
    return Visitor(page)


@pytest.fixture
def plan(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(PLAN)
    return file


def started(visitor: Visitor, plan) -> None:
    visitor.open("Experiments")
    visitor.put("experiment-plan", "own")
    visitor.give("experiment-file", plan)
    visitor.press("experiment-run")
    assert visitor.breakdowns == []


def ended(visitor: Visitor, until: str) -> str:
    """The same, once nothing runs any more."""
    said = ticked(visitor, until)
    deadline = time.monotonic() + 120
    while visitor.visible(visitor.find("experiment-stop")):
        assert time.monotonic() < deadline
        said = ticked(visitor, until, at_least=1)
    return said


def ticked(visitor: Visitor, until: str, at_least: int = 0) -> str:
    """What the progress says, once it says this."""
    timer = next(block for block in visitor.page.blocks.values() if isinstance(block, gr.Timer))
    deadline = time.monotonic() + 120
    while until not in (said := visitor.value(visitor.find("experiment-progress")) or "") or at_least > 0:
        at_least -= 1
        assert time.monotonic() < deadline, said
        time.sleep(0.05)
        visitor.fire(timer, "tick")
        assert visitor.breakdowns == []
    return said


def test_a_plan_of_ones_own_runs_and_its_tables_and_figures_are_shown(visitor, plan):
    started(visitor, plan)
    said = ended(visitor, "2 of 2 items done")
    assert "Mine &lt;b&gt;" in said
    tables = visitor.value(visitor.find("experiment-report"))
    assert "<td>speculative</td>" in tables
    assert "Mine <b>" not in tables
    assert '<svg class="plot"' in tables
    assert not visitor.visible(visitor.find("experiment-stop"))
    assert not visitor.visible(visitor.find("experiment-resume"))


def test_a_second_visitor_and_a_restarted_page_see_the_same(visitor, plan, host):
    started(visitor, plan)
    ended(visitor, "2 of 2 items done")
    for other in (Visitor(visitor.page, session="another"), Visitor(served(host))):
        other.open("Experiments")
        assert "2 of 2 items done" in other.value(other.find("experiment-progress"))
        assert other.value(other.find("experiment-report")) == visitor.value(visitor.find("experiment-report"))


def test_it_waits_its_turn_says_so_and_is_stopped_and_resumed(visitor, plan, host):
    with host.device.turn:  # a comparison has the device
        started(visitor, plan)
        assert "loading the models" in ticked(visitor, "loading")
    ended(visitor, "2 of 2 items done")
    plan.write_text(PLAN.replace("limit = 2", "limit = 3"))
    visitor.give("experiment-file", plan)
    with host.device.turn:
        visitor.press("experiment-run")
        visitor.press("experiment-stop")
    said = ended(visitor, "stopped; Resume does the rest")
    assert "of 3 items done" in said
    assert visitor.visible(visitor.find("experiment-resume"))
    visitor.press("experiment-resume")
    ticked(visitor, "3 of 3 items done")


def test_files_are_made(visitor, plan):
    started(visitor, plan)
    ticked(visitor, "2 of 2 items done")
    visitor.press("experiment-make")
    files = visitor.value(visitor.find("experiment-files"))
    assert [f.rsplit(".", 1)[1] for f in files] == ["html", "md", "csv"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[part]]\ndecoders = ["gredy"]', "did you mean 'greedy'"),
        ("nonsense", "mine.toml is not TOML"),
        ('[[part]]\nprompts = ["/etc/hosts.txt"]\ndecoders = ["greedy"]', "There is no set of prompts"),
        ('[[part]]\nprompts = ["squad"]\ndecoders = ["greedy"]', "does not come with the project"),
    ],
)
def test_a_plan_that_cannot_be_used_is_a_sentence_and_nothing_starts(visitor, plan, text, says):
    plan.write_text(text)
    started(visitor, plan)
    assert says in visitor.value(visitor.find("experiment-note")).replace("&#x27;", "'")


def test_without_a_file_it_says_so(visitor):
    visitor.put("experiment-plan", "own")
    visitor.press("experiment-run")
    assert "No plan is chosen" in visitor.value(visitor.find("experiment-note"))


def test_a_shared_machine_offers_no_plan_of_ones_own_and_no_list(pair, tmp_path, plan):
    visitor = Visitor(served(a_host(pair, tmp_path, public=True)))
    assert "own" not in [value for _, value in visitor.find("experiment-plan").choices]
    assert not visitor.find("experiment-past").visible
    visitor.put("experiment-plan", "own")
    visitor.give("experiment-file", plan)
    visitor.press("experiment-run")
    assert "No plan is chosen" in visitor.value(visitor.find("experiment-note"))


def test_on_a_shared_machine_all_see_one_experiment_which_can_be_resumed_after_a_restart(pair, tmp_path, monkeypatch):
    """The hidden list of experiments was empty there, so that Resume could not be pressed; and a restarted page forgot it."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "stories.toml").write_text(PLAN.replace("limit = 2", "limit = 3"))
    monkeypatch.setattr("workbench.experiments.plan_file.FOLDER", tmp_path / "plans")
    host = a_host(pair, tmp_path, public=True)
    visitor = Visitor(served(host))
    visitor.open("Experiments")
    with host.device.turn:
        visitor.press("experiment-run")
        visitor.press("experiment-stop")
    ended(visitor, "stopped; Resume does the rest")
    again = Visitor(served(host), session="another")
    again.open("Experiments")
    assert again.visible(again.find("experiment-resume"))
    past = again.find("experiment-past")
    assert [id for _, id in again.told(past, "choices")] == [again.value(past)]
    again.press("experiment-resume")
    assert "3 of 3 items done" in ended(again, "3 of 3 items done")
    assert again.breakdowns == []


def test_advice_is_given_with_the_pair_that_is_loaded(visitor):
    visitor.put("advice-count", 2)
    visitor.put("advice-temperature", 0)
    visitor.press("advice-ask")
    said = visitor.value(visitor.find("advice-answer"))
    assert visitor.breakdowns == []
    assert "predicted x greedy" in said
    assert "at temperature 0" in said
