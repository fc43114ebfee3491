"""`python -m workbench experiment` and `advise` on the tiny pair."""

import re

import pytest

from tests.workbench.experiments.test_schema import RAISED, written
from workbench.experiments.journal import Journal
from workbench.experiments.plan import ExperimentRequest
from workbench.terminal import show

PLAN = '[[part]]\nlimit = 2\nmax_new_tokens = 6\ndecoders = ["speculative"]\n'


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.experiments.workers.IDLE_SECONDS", 0.01)
    (tmp_path / "mine.toml").write_text(f'title = "Mine [bold]"\n{PLAN}')
    return str(tmp_path / "mine.toml")


def test_a_plan_runs_is_listed_reported_and_resumed(call, loads, plan, tmp_path):
    status, out, err = call("experiment", plan, "--to", "md", "csv", "html", "--out", str(tmp_path))
    assert (status, "speculative" in out) == (0, True), err
    id = out.split("experiment ")[1].split(",")[0]
    assert {f.suffix for f in tmp_path.glob(f"mine-{id}.*")} == {".md", ".csv", ".html"}
    assert (tmp_path / f"mine-{id}.md").read_text().startswith("# Mine [bold]")
    status, out, _ = call("experiment", "--list")
    assert f"{id}" in out
    assert "2/2" in out
    assert "stories" in out
    assert call("experiment", "report", id)[1].startswith("# Mine [bold]")
    status, out, _ = call("experiment", "resume", id)
    assert (status, id in out) == (0, True)


def test_a_plan_runs_on_quantised_weights_where_no_model_is_named(call, loads, plan):
    """`--quantization` alone was ignored without a word."""
    assert call("experiment", plan, "--limit", "1", "--quantization", "int8")[0] == 0
    assert {choice.quantization for choice in loads} == {"int8"}


@pytest.mark.parametrize("option", [("--quantization", "int8"), ("--device", "cpu")])
def test_how_models_are_loaded_does_not_replace_those_that_a_plan_names(call, option):
    """The embedded pair was measured in their place, under the plan's name."""
    status, _, errors = call("experiment", "mtad-table4", *option)
    assert status == 2
    assert "The plan mtad-table4 names its models: give --models, or omit --device" in errors


def test_a_row_that_failed_gives_status_1(call, plan, monkeypatch):
    from decoders import catalog

    def decode(self, request):
        raise RuntimeError("broken on purpose")
        yield

    monkeypatch.setattr(catalog["speculative"], "decode", decode)
    status, out, _ = call("experiment", plan, "--limit", "1")
    assert status == 1
    assert "broken on purpose (1 time)" in out


def test_what_an_earlier_version_did_is_said_when_an_experiment_is_opened(call, tmp_path):
    """Results of other prompts stood in tables without a word."""
    written(tmp_path / "data")
    status, out, err = call("experiment", "report", RAISED)
    assert (status, err) == (0, "")
    assert "1 of 6 items still have to be run: resume the experiment." in out
    out = call("experiment", "resume", RAISED)[1]
    assert out.startswith("An earlier version of the workbench")


def test_show_says_what_a_plan_measures(call):
    status, out, _ = call("experiment", "show", "stories")
    assert status == 0
    assert "threshold: 12 settings of multinomial, mtad" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("storys", "did you mean 'stories'"),
        ("engines", "The plan `engines` is gone; AIPerf, GuideLLM and `vllm bench serve` put load"),
        ("none.toml", "none.toml cannot be read"),
        ("stories --limit 0", "--limit takes a whole number"),
        ("stories --limit x", "--limit takes a whole number"),
        ("stories --data /no/such", "There is no folder /no/such"),
        ("stories --out /no/such", "There is no folder /no/such"),
        ("stories --to pdf", "--to takes html, md, csv, spec-bench"),
        ("stories --gpus 3", "--gpus takes `all` or a number"),
        ("stories --gpus all --ray local", "either --gpus or --ray"),
        ("resume nothing", "There is no experiment 'nothing'"),
        ("report nothing", "There is no experiment 'nothing'"),
        ("resume", "takes one name"),
        ("stories more", "takes one name"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(call, loads, words, says):
    status, out, err = call("experiment", *words.split())
    assert (status, out, loads) == (2, "", [])
    assert says in err
    assert err.strip().count("\n") == 0


def test_advise_ranks_and_says_whether_it_pays(call, monkeypatch):
    """It ran for more than a minute without a word, and then gave speeds without intervals."""
    monkeypatch.setattr(show, "LINE_SECONDS", 0)
    status, out, err = call(
        "advise", "--count", "3", "--max-new-tokens", "12", "--temperature", "0"
    )
    assert status == 0, err
    assert "predicted x greedy" in out
    assert re.search(
        r"The best exact decoder is .* at \d\.\d\d \(\d\.\d\d to \d\.\d\d\) times greedy",
        " ".join(out.split()),
    )
    assert re.search(r"^1/\d+ multinomial on prompt 1$", err, re.M)
    assert re.search(r"^\d+/\d+ \S+ on prompt 3$", err, re.MULTILINE)


@pytest.mark.parametrize(
    "words", ["--temperature warm", "--max-new-tokens many", "--count few", "--prompts none.txt"]
)
def test_advise_refuses_in_one_sentence(call, words):
    status, _, err = call("advise", *words.split())
    assert status == 2
    assert err.strip().count("\n") == 0


def test_a_stored_experiment_on_servers_is_one_sentence(call):
    request = ExperimentRequest('[[engine]]\nname = "fast"\n', "load.toml")
    Journal().begin("a1b2c3", "Load", request.to_json(), {}, [])
    for action in ("report", "resume"):
        status, out, err = call("experiment", action, "a1b2c3")
        assert (status, out) == (2, "")
        assert err.startswith("load.toml: Plans no longer ask servers of other engines")
        assert len(err.splitlines()) == 1
