"""No way into the workbench takes the address of an engine: a page is no way to call other hosts.

Plans are tested where they are read."""

import json
from dataclasses import replace
from urllib.parse import quote

import gradio as gr
import pytest

from decoders import InputError
from tests.workbench.engines.served import Served, a_json, served
from workbench.engines.addresses import LISTED
from workbench.kinds import registry
from workbench.kinds.comparison import Comparison
from workbench.kinds.comparison.form import endpoints
from workbench.page.form import SettingsForm
from workbench.studies.settings import ADDRESS, NAME, SERVED

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


def test_nor_in_the_settings_of_an_engine(server):
    settings = {"decoders": [f"{SERVED}fast"], f"{SERVED}fast": {"url": server.url}}
    with pytest.raises(InputError, match="no setting 'engine:fast'"):
        Comparison.from_json({"prompt": "a", "settings": settings})


def test_a_link_takes_none(server):
    for name in forms(server):
        link = registry.from_query({"decoders": f"greedy,{name}", "prompt": "a"})
        assert SAYS in link.faults[0]
        assert "settings" not in link.data


def test_a_link_names_engines_and_holds_no_address():
    data = {"prompt": "a", "settings": {"decoders": ["greedy", f"{SERVED}fast"]}}
    query = registry.to_query("comparison", data)
    assert f"decoders=greedy%2C{quote(SERVED, safe='')}fast" in query
    found = registry.from_query({"decoders": f"greedy,{SERVED}fast"})
    assert (found.faults, found.data["settings"]["decoders"]) == ([], ["greedy", f"{SERVED}fast"])


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
    assert form.decoders.families[-1].decoders == (f"{SERVED}fast",)
    values = form.decoders.filled([])
    values[form.decoders.groups[-1]] = [f"{SERVED}fast", *forms(server), f"{SERVED}other"]
    assert form.decoders.chosen(values) == [f"{SERVED}fast"]
    asked = ["greedy", f"{SERVED}fast", f"{SERVED}other"]
    assert "Engine other is not known here" in form.decoders.missing(asked)[0]
    assert len(form.decoders.missing(asked)) == 1


def test_other_kinds_ask_no_engines():
    for kind, extra in (("draw", {"prompt": "a"}), ("batch", {"prompts": "refrains"})):
        data = {**extra, "settings": {"decoders": ["greedy", f"{SERVED}fast"]}}
        with pytest.raises(InputError, match=f"A {kind} asks no engines; leave out Engine fast"):
            registry.studies()[kind].from_json(data)


@pytest.mark.parametrize("name", ["fast", "a.b-c_1", "GPU2"])
def test_names_are_no_addresses(name):
    assert NAME.fullmatch(name)
    assert not ADDRESS.search(name)
