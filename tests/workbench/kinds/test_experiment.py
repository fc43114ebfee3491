"""Experiments in the terminal and in their tab."""

import re
import time

import gradio as gr
import pytest

from tests.workbench.page.conftest import a_host
from tests.workbench.page.visitor import Visitor
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.kinds.experiment.form import ExperimentsTab
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.page.host import Host

PLAN = (
    'title = "Mine <b>"\n[[part]]\nlimit = 2\nmax_new_tokens = 6\ndecoders = ["speculative"]\n'
    '[[draw]]\nkind = "front"\npart = "part 1"\nx = "tokens/s"\ny = ["perplexity"]\n'
)


def served(host: Host) -> gr.Blocks:
    """A page that has this tab alone."""
    with gr.Blocks() as page:
        ExperimentsTab(host, gr.State(PairChoice()))
    return page


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """The only plan of the project."""
    monkeypatch.setattr("workbench.experiments.plan.FOLDER", tmp_path)
    file = tmp_path / "stories.toml"
    file.write_text(PLAN)
    return file


@pytest.fixture
def visitor(host, plan) -> Visitor:
    return Visitor(served(host))


def started(visitor: Visitor, plan) -> None:
    visitor.open("Experiments")
    again(visitor, plan)
    assert visitor.breakdowns == []


def again(visitor: Visitor, plan, *changes: tuple[str, str]) -> None:
    """Run the plan, as it is now or with these changes."""
    for old, new in changes:
        plan.write_text(plan.read_text().replace(old, new))
    visitor.press("experiment-run")


def ticked(visitor: Visitor, until: str, ended: bool = False) -> str:
    """The progress, as soon as it has this text, or, with `ended`, once nothing runs any more."""
    timer = next(block for block in visitor.page.blocks.values() if isinstance(block, gr.Timer))
    deadline = time.monotonic() + 120
    while until not in (said := visitor.value("experiment-progress") or "") or (
        ended and visitor.visible("experiment-stop")
    ):
        assert time.monotonic() < deadline, said
        time.sleep(0.05)
        visitor.fire(timer, "tick")
        assert visitor.breakdowns == []
    return said


def ended(visitor: Visitor, until: str) -> str:
    """The same, once nothing runs any more."""
    return ticked(visitor, until, ended=True)


def test_a_plan_runs_and_its_tables_and_figures_are_shown(visitor, plan):
    started(visitor, plan)
    said = ended(visitor, "2 of 2 items done")
    assert "Mine &lt;b&gt;" in said
    tables = "".join(part.value for part in visitor.rendered if isinstance(part, gr.HTML))
    assert "<td>speculative</td>" in tables
    assert "Mine <b>" not in tables
    assert [type(part) for part in visitor.rendered].count(gr.Plot) == 1
    assert not visitor.visible("experiment-stop")
    assert not visitor.visible("experiment-resume")


def test_it_waits_its_turn_says_so_and_is_stopped_and_resumed(visitor, plan, host):
    with host.device.turn:  # a comparison has the device
        started(visitor, plan)
        assert "loading the models" in ticked(visitor, "loading")
    ended(visitor, "2 of 2 items done")
    with host.device.turn:
        again(visitor, plan, ("limit = 2", "limit = 3"))
        visitor.press("experiment-stop")
    said = ended(visitor, "stopped; press Resume to finish it")
    assert "of 3 items done" in said
    assert visitor.visible("experiment-resume")
    visitor.press("experiment-resume")
    ticked(visitor, "3 of 3 items done")


def test_a_fault_is_told_only_where_it_happened(visitor, plan, host, monkeypatch):
    """A pair that could not be loaded was reported beside an earlier, sound experiment."""
    started(visitor, plan)
    ended(visitor, "2 of 2 items done")
    earlier = visitor.value("experiment-past")
    with monkeypatch.context() as patch:
        missing = PairChoice("/no/such")
        patch.setattr(host.pairs, "get", lambda _: PairKeeper.get(host.pairs, missing))
        again(visitor, plan, ("Mine <b>", "Another one"))
        said = ended(visitor, "There is no folder /no/such")
    assert '<div role="alert">Another one: There is no folder' in said
    again(visitor, plan, ("Another one", "A third one"), ("limit = 2", "limit = 1"))
    assert 'role="alert"' not in ended(visitor, "1 of 1 items done")
    visitor.put("experiment-past", earlier)
    assert "alert" not in visitor.value("experiment-progress")


def test_files_are_made(visitor, plan):
    started(visitor, plan)
    ticked(visitor, "2 of 2 items done")
    visitor.press("experiment-make")
    links = re.findall(r'stories-\w+\.(\w+)" href="data:;base64,', visitor.value("experiment-note"))
    assert links == ["html", "md", "csv"]


def test_a_plan_whose_prompts_are_not_here_is_a_sentence_and_nothing_starts(visitor, plan):
    plan.write_text('[[part]]\nprompts = ["squad"]\ndecoders = ["greedy"]')
    started(visitor, plan)
    assert "does not come with the project: download" in visitor.value("experiment-note")


def test_a_shared_machine_runs_no_plan_and_says_so(pair, tmp_path):
    page = served(a_host(pair, tmp_path, public=True))
    (says,) = (
        b.value for b in page.blocks.values() if isinstance(b, gr.Markdown) and "plan" in b.value
    )
    assert "run this workbench on your own machine" in says
    assert "experiment-run" not in [block.elem_id for block in page.blocks.values()]


SHORT = '[[part]]\nlimit = 2\nmax_new_tokens = 6\ndecoders = ["speculative"]\n'


@pytest.fixture
def plan_file(tmp_path):
    (tmp_path / "mine.toml").write_text(f'title = "Mine [bold]"\n{SHORT}')
    return str(tmp_path / "mine.toml")


def test_a_plan_runs_is_listed_reported_and_resumed(call, loads, plan_file, tmp_path):
    files = ("--to", "md", "csv", "html", "--out", str(tmp_path))
    status, out, err = call("experiment", plan_file, *files)
    assert (status, "speculative" in out) == (0, True), err
    id = out.split("experiment ")[1].split(",")[0]
    assert {f.suffix for f in tmp_path.glob(f"mine-{id}.*")} == {".md", ".csv", ".html"}
    assert (tmp_path / f"mine-{id}.md").read_text().startswith("# Mine [bold]")
    _, out, _ = call("experiment", "--list")
    assert all(word in out for word in (id, "2/2", "stories"))
    assert call("experiment", "report", id)[1].startswith("# Mine [bold]")
    status, out, _ = call("experiment", "resume", id)
    assert (status, id in out) == (0, True)


def test_a_plan_runs_on_quantised_weights_where_no_model_is_named(call, loads, plan_file):
    """`--quantization` alone was ignored without a word."""
    assert call("experiment", plan_file, "--limit", "1", "--quantization", "int8")[0] == 0
    assert {choice.quantization for choice in loads} == {"int8"}


@pytest.mark.parametrize("option", [("--quantization", "int8"), ("--device", "cpu")])
def test_how_models_are_loaded_does_not_replace_those_that_a_plan_names(call, option):
    """The embedded pair was measured in their place, under the plan's name."""
    status, _, errors = call("experiment", "mtad-table4", *option)
    assert status == 2
    assert "The plan mtad-table4 names its models: give --models, or omit --device" in errors


def test_a_row_that_failed_gives_status_1(call, tmp_path):
    (tmp_path / "long.jsonl").write_text('{"prompt": "%s"}' % ("ab " * 400))
    own = tmp_path / "own.toml"
    own.write_text(SHORT.replace("limit = 2", 'prompts = ["long.jsonl"]'))
    status, out, _ = call("experiment", str(own), "--data", str(tmp_path))
    assert status == 1
    assert "exceed the 512 positions" in out


def test_a_stored_experiment_on_servers_is_one_sentence(call):
    request = ExperimentRequest('[[engine]]\nname = "fast"\n', "load.toml")
    Journal().begin("a1b2c3", "Load", request.to_json(), {}, [])
    for action in ("report", "resume"):
        status, out, err = call("experiment", action, "a1b2c3")
        assert (status, out) == (2, "")
        assert err.startswith("load.toml: Plans no longer ask servers of other engines")
        assert len(err.splitlines()) == 1
