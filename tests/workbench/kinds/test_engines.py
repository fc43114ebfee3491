"""An engine in a comparison: what is not told is not drawn, and no way in takes its address."""

import csv
import io
import json
from dataclasses import replace

import gradio as gr
import pytest

from decoders import InputError
from tests.workbench.engines.served import Served, a_json, served
from workbench.engines.addresses import LISTED
from workbench.kinds import registry
from workbench.kinds.comparison import Comparison
from workbench.kinds.comparison.form import endpoints
from workbench.measuring.served import NO_ENERGY, untold
from workbench.page.form import SettingsForm
from workbench.runs.figures import rows
from workbench.runs.record import UNTOLD, Lap, Result, Run, Sample, Server, TokenRecord
from workbench.show import comparison, tables
from workbench.show.panel import run_panels
from workbench.show.tables import verdict
from workbench.show.view import WRITERS
from workbench.studies.settings import SERVED

NAME = "engine:fast"
MODEL = "<b>stories</b>"


def token(i: int) -> TokenRecord:
    return TokenRecord(i, 3 + i, f" w{i}", UNTOLD, i // 2, None, None, None, None, -1.0, [])


def asked(**changes) -> Result:
    """Four tokens that came in two pieces, timed twice."""
    known = {"new_tokens": 4, "seconds": 2.0, "tokens_per_second": 2.0, "perplexity": 2.5}
    sample = Sample(0, 3, " w0 w1 w2 w3", [token(i) for i in range(4)], arrivals=[0.5, 1.5])
    laps = [Lap(2.0, [], NO_ENERGY, 1.5, drawn=False), Lap(2.0, [], NO_ENERGY, 1.6, drawn=False)]
    server = Server("vllm", "0.32.0", MODEL)
    found = Result(
        NAME, 0, 0, {**untold(), **known}, NO_ENERGY, [sample], laps, server=server,
        remarks=["It tells little."],
    )  # fmt: skip
    return replace(found, **changes)


@pytest.fixture
def beside(run) -> Run:
    """An engine beside the decoders of a run."""
    once = [result for result in run.results if result.repeat == 0]
    names = [*run.settings["decoders"], NAME]
    settings = {**run.settings, "decoders": names, "repeats": 1}
    return replace(run, results=[*once, asked()], study={**run.study, "settings": settings})


def panel(run: Run) -> dict:
    return json.loads(run_panels(run)[-1])


def test_a_panel_says_what_the_server_is_and_when_its_first_token_came(beside):
    found = panel(beside)
    assert (found["decoder"], found["title"]) == (NAME, "Engine fast")
    assert found["claim"] == "vllm 0.32.0, over HTTP"
    assert f"It serves “{MODEL}”. It is measured from outside" in found["claim_help"]
    top = {n["name"]: n["value"] for n in found["numbers"] if n["place"] == "top"}
    assert list(top) == ["x_greedy", "first_token"]
    assert top["first_token"] == "400 ms"
    assert found["notes"] == ["It tells little."]
    assert found["rounds"] == []


def test_charts_tables_and_files_hold_it(beside):
    drawn = comparison.charts(rows(beside.results), beside.settings)
    assert any("Engine fast" in figure.to_json() for figure in drawn)
    assert tables.figures(beside).rows[-1][0] == "Engine fast"
    for write in WRITERS.values():
        assert "Engine fast" in write(beside) or NAME in write(beside)
    assert MODEL not in WRITERS["html"](beside)
    assert Run.from_json(WRITERS["json"](beside)) == beside
    assert verdict(beside)


def test_a_spreadsheet_has_columns_for_engines_where_there_is_one(beside, run):
    """The engine's kind once stood in the column of the run's kind."""

    def lines(run):
        return list(csv.DictReader(io.StringIO(WRITERS["csv"](run))))

    first, *_, last = found = lines(beside)
    told = [last[f"engine_{name}"] for name in ("kind", "version", "model")]
    assert told == ["vllm", "0.32.0", MODEL]
    assert {line["kind"] for line in found} == {"comparison"}
    assert float(last["seconds_to_first_token"]) == pytest.approx(0.4)
    assert (last["verdict"], last["bytes_read"]) == ("", "")
    assert first["engine_version"] == ""
    assert "engine_version" not in lines(run)[0]


SAYS = "by the name that whoever runs the workbench"


@pytest.fixture
def server():
    """A server that nobody may call."""
    with served(lambda call: a_json({})) as found:
        yield found
        assert found.calls == []


def forms(server: Served) -> list[str]:
    """What a visitor may write to have a server called."""
    bare = server.url.removeprefix("http://")
    return [f"{SERVED}{server.url}", f"{SERVED}{bare}", f"{SERVED}//{bare}", f"{SERVED}x@{bare}"]


def test_a_study_takes_none(server):
    for name in forms(server):
        with pytest.raises(InputError, match=SAYS) as error:
            Comparison.from_json({"prompt": "a", "settings": {"decoders": ["greedy", name]}})
        assert "127.0.0.1" not in str(error.value)
    with pytest.raises(InputError, match="Neither a decoder nor an engine is called by"):
        Comparison.from_json({"prompt": "a", "settings": {"decoders": [server.url]}})


def test_an_import_takes_none(server, run):
    first = run.results[0]
    for name in forms(server):
        told = replace(run, results=[first]).to_json()
        told["results"][0]["decoder"] = name
        with pytest.raises(InputError, match="no such decoder"):
            registry.read(json.dumps(told))
        asked = run.to_json()
        asked["study"]["settings"]["decoders"] = ["greedy", name]
        with pytest.raises(InputError, match=SAYS):
            registry.read(json.dumps(asked))


def test_the_api_takes_none(server, host):
    compare, *_ = endpoints(host)
    for name in forms(server):
        with pytest.raises(gr.Error, match=SAYS):
            list(compare("a", ["greedy", name]))
    with pytest.raises(gr.Error, match=f"There is no engine 'fast' here: .* sets {LISTED}"):
        list(compare("a", ["greedy", f"{SERVED}fast"]))


def test_the_form_takes_only_names_that_it_shows(server):
    form = SettingsForm({}, {}, engines=["fast"])
    with gr.Blocks():
        form.lay_out_decoders()
    assert form.families[-1].decoders == (f"{SERVED}fast",)
    values: dict = {group: [] for group in form.groups}
    values[form.groups[-1]] = [f"{SERVED}fast", *forms(server), f"{SERVED}other"]
    assert form.chosen(values) == [f"{SERVED}fast"]
    asked = ["greedy", f"{SERVED}fast", f"{SERVED}other"]
    assert "Engine other is not known here" in form.missing(asked)[0]
    assert len(form.missing(asked)) == 1


def test_other_kinds_ask_no_engines():
    for kind, extra in (("draw", {"prompt": "a"}), ("batch", {"prompts": "refrains"})):
        data = {**extra, "settings": {"decoders": ["greedy", f"{SERVED}fast"]}}
        with pytest.raises(InputError, match=f"A {kind} asks no engines; leave out Engine fast"):
            registry.studies()[kind].from_json(data)
