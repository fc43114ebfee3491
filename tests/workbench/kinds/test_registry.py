"""Links and files from outside: what can be used is taken, and all else is one sentence."""

import copy
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders import InputError, catalog
from tests.pairwise import EVERYWHERE
from workbench.kinds import registry
from workbench.kinds.batch import Batch, findings
from workbench.kinds.comparison import Comparison
from workbench.kinds.draw import Draw
from workbench.kinds.registry import Link, from_query, to_query
from workbench.runs.figures import BatchFigures, rows, times_greedy
from workbench.runs.record import Run
from workbench.runs.store import RunStore
from workbench.show import draws, tables, view
from workbench.show.panel import run_panels
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.settings import Settings
from workbench.studies.study import GONE


def read(query: str) -> Link:
    return from_query(dict(parse_qsl(query, keep_blank_values=True)))


OWN = {
    "decoders": ["speculative", "dsbd", "mtad"], "temperature": 0.5, "top_k": 20, "min_p": 0.1,
    "top_n_sigma": 1.5, "temperature_last": True, "speculative": {"draft_length": "auto"},
    "dsbd": {"beams": 3, "keep_one": True}, "mtad": {"threshold": 0.25},
}  # fmt: skip
OF_BATCH = {
    "sizes": [2, 8], "schemes": ["dynamic"], "ignore_eos": False, "cache_mb": 2.5,
    "prefill_chunk": 16,
}  # fmt: skip


@pytest.mark.parametrize("study", [
    Comparison.from_json({"prompt": "é 🦊 & ${x}=1\n", "settings": OWN}),
    Comparison.from_json({"prompt": [{"role": "user", "content": "Why?"}], "settings": OWN}),
    Batch.from_json({"prompts": {"name": "refrains", "count": 5}, "settings": OWN | OF_BATCH}),
    Draw.from_json({"prompt": "é\n", "settings": {**OWN, "draws": 200, "cache_mb": None}}),
], ids=["a text", "messages", "batch", "draw"])  # fmt: skip
def test_a_study_there_and_back(study):
    link = read(to_query(study.kind, study.to_json()))
    assert (link.kind, link.faults) == (study.kind, [])
    assert type(study).from_json(link.data) == study


def test_the_texts_of_a_file_stay_out_of_a_link():
    settings = Settings.from_json({"decoders": ["lookup"]})
    study = Batch(PromptSet("mine.txt", (Prompt("secret", "mine.txt, line 1"),)), settings)
    assert "mine" not in to_query("batch", study.to_json())


def test_defaults_are_left_out():
    study = Comparison("x", Settings.from_json({"decoders": ["greedy", "mtad"]}))
    assert to_query("comparison", study.to_json()) == "prompt=x&decoders=greedy%2Cmtad"


@given(
    st.floats(0, 2),
    st.sampled_from([0, 20]),
    st.integers(0, 3),
    st.sets(st.sampled_from(list(catalog)), min_size=1),
)
def test_what_the_form_shows_anyway_is_left_out_and_the_rest_comes_back(
    temperature, top_k, seed, decoders
):
    start = {"decoders": ["greedy", "mtad"], "temperature": 0.7, "top_k": 20}
    asked = {"decoders": [*decoders], "temperature": temperature, "top_k": top_k, "seed": seed}
    study = Comparison("x", Settings.from_json(asked))
    link = read(to_query("comparison", study.to_json(), {"settings": start}))
    told = link.data.get("settings", {})
    found = Settings.from_json({**start, **told})
    assert {m.name for m in found.methods} == decoders
    assert dataclasses.replace(study.settings, methods=found.methods) == found
    assert not [name for name in start if told.get(name) == start[name]]


@pytest.mark.parametrize(("query", "word"), [
    ({"temperatur": "1"}, "'temperature'"),
    ({"temperature": "hot"}, "temperature must be"),
    ({"decoders": "gredy"}, "'greedy'"),
    ({"mtad.beans": "1"}, "'mtad.beams'"),
    ({"kind": "batsch"}, "did you mean 'batch'?"),  # a comparison ran without a word
    ({"kind": "batch", "prompts": "novels"}, "stories"),
    ({"kind": "batch", "count": "0"}, "from 1 to"),
    ({"kind": "batch", "sizes": "9" * 5000}, "whole numbers"),
    ({"kind": "batch", "cache_mb": "much"}, "cache_mb"),
])  # fmt: skip
def test_what_cannot_be_used_is_left_out_and_named_and_the_rest_is_taken(query, word):
    """One unknown parameter dropped all valid settings of a link."""
    link = from_query({"seed": "7", **query})
    assert link.data == {"settings": {"seed": 7}}
    assert len(link.faults) == 1
    assert word in link.faults[0]


def test_links_and_runs_of_advice_which_is_gone_are_one_sentence(run, call, tmp_path):
    """Earlier versions said which decoder pays: with predictions, under load, for a GPU."""
    says = GONE["advice"]
    link = read("kind=advice&prompts=stories&count=4&loads=1,4&temperature=0")
    assert link == Link("comparison", {}, [says])
    old = dataclasses.replace(run, kind="advice")
    with pytest.raises(InputError) as refusal:
        registry.read(old.dumps())
    assert str(refusal.value) == says
    RunStore().save(old)
    assert says in " ".join(call("runs", "show", old.id)[1].split())


def test_parameters_of_somebody_else_are_passed_over():
    """`utm_source`, `fbclid` and `__sign` raised an alert of 60 names and dropped valid
    settings."""
    others = {"utm_source": "mail", "fbclid": "x", "__sign": "y", "__theme": "dark"}
    link = from_query({**others, "top_k": "5"})
    assert link == Link("comparison", {"settings": {"top_k": 5}}, [])


def test_words_of_the_page_are_no_study():
    assert from_query({"run": "0123", "__theme": "dark", "utm_source": "mail"}) is None
    assert from_query({}) is None


NAMES = st.sampled_from(
    ["prompt", "decoders", "temperature", "seed", "mtad.beams", "specinfer.expansion",
     "lookup.references", "kind", "prompts", "count", "sizes", "schemes", "ignore_eos", "cache_mb",
     "prefill_chunk"]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["batch", "stories", "nan", "inf", "-0", "1e999", *catalog]),
)


@given(st.dictionaries(st.one_of(NAMES, st.text(max_size=12)), TEXTS, max_size=6))
def test_any_link_is_answered(query):
    link = from_query(query)
    assert link is None or all(isinstance(fault, str) for fault in link.faults)


VERSION_1 = Path(__file__).parents[1] / "runs" / "version1"
DEEP = json.loads("[" * 300 + "]" * 300)
HOSTILE = (
    DEEP, None, True, False, 0, 1, -1, 5, 2**53 + 1, 10**400, -(10**400), 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), 0.5, "", "x", "9999-99-99", "9999-12-31T23:59:59",
    "0001-01-01T00:00:00+14:00", "<script>alert(1)</script>", "\x00", "é 🦊", [], [[]], [None], {},
    {"x": 1}, ["greedy"], {"name": "stories"}, {"name": "stories", "texts": None, "count": 1},
)  # fmt: skip


def places(data: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every place of a tree of plain data; of long lists, the first two and the last items."""
    yield path
    if isinstance(data, dict):
        for name, value in data.items():
            yield from places(value, (*path, name))
    elif isinstance(data, list):
        for i in sorted({0, 1, len(data) - 1} & set(range(len(data)))):
            yield from places(data[i], (*path, i))


def changed(data: Any, path: tuple, value: Any) -> Any:
    """A copy that has the value at the place, or without the place if the value is "remove"."""
    data = copy.deepcopy({"": data})
    container, key = data, ""
    for step in path:
        container, key = container[key], step
    if value == "remove" and path:
        del container[key]
    else:
        container[key] = value
    return data[""]


def use(run: Run) -> None:
    """All uses of a run in the workbench, wherever it came from."""
    assert Run.from_json(json.dumps(run.to_json(), allow_nan=False)) == run
    assert Run.from_json(run.dumps()) == run
    assert isinstance(run.models, str)
    for row in rows(run.results):
        for result, greedy in zip(row.results, row.greedy, strict=True):
            for decoding in (False, True):
                times = times_greedy(result, greedy, decoding)
                assert times is None or math.isfinite(times)
    figures = BatchFigures(run)
    for decoder in figures.decoders:
        for size in figures.sizes:
            figures.least_acceptance(decoder, size)
            for scheme in figures.schemes(decoder):
                figures.times_greedy(decoder, size, scheme)
    to_query(run.kind, run.study)
    for written in (view.to_json(run), view.to_csv(run), tables.figures(run), tables.facts(run)):
        assert str(written)
    tables.side_by_side(run, run)
    findings(run)
    tables.notes(run)
    run_panels(run)
    if run.kind == "draw":
        assert draws.headline(run) or not run.results
        assert str(draws.table(run)) + draws.trees(run)


@pytest.fixture(scope="session")
def documents(run, batch_run, draw_run, branch_run) -> list[tuple]:
    """A run of each kind as written today and by version 1, each with its places. Cut short to be
    quick."""
    found = [each.to_json() for each in (run, batch_run, draw_run, branch_run)]
    old = (VERSION_1 / f"{name}.json" for name in ("comparison", "batch"))
    found += [json.loads(file.read_text()) for file in old]
    for data in found:
        for results in ("results", "cells"):
            data[results] = data.get(results, [])[:3]
            if not data[results]:
                del data[results]
    return [(data, list(places(data))) for data in found]


@settings(max_examples=400 if EVERYWHERE else 10)
@given(data=st.data())
def test_whatever_stands_in_a_file_it_is_a_run_or_one_sentence(documents, data):
    """`metrics: {}`, texts in place of numbers, 10^400 and `settings.speculative: 5` gave a 500
    without a message and stayed in the list; an impossible date stayed on top of it."""
    document, where = documents[data.draw(st.integers(0, len(documents) - 1), "document")]
    path = where[data.draw(st.integers(0, len(where) - 1), "place")]
    document = changed(document, path, data.draw(st.sampled_from(("remove", *HOSTILE)), "change"))
    text = json.dumps(document)
    found, sentence = None, ""
    try:
        found = registry.read(text)
    except InputError as refusal:
        sentence = str(refusal)
    assert "\n" not in sentence
    assert len(sentence) < 1000
    if found is not None:
        use(found)


@pytest.fixture(params=["run", "batch_run", "draw_run", "branch_run"])
def any_run(request) -> Run:
    return request.getfixturevalue(request.param)


def refused(run: Run, change: Callable[[dict], Any]) -> str:
    data = run.to_json()
    change(data)
    with pytest.raises(InputError) as refusal:
        registry.read(json.dumps(data))
    return str(refusal.value)


@pytest.mark.parametrize(("change", "says"), [
    (lambda d: d["study"]["settings"].update(speculative=5),
        "The settings of speculative must be one JSON object"),
    (lambda d: d.update(study={}), "study"),
    (lambda d: d.update(kind="nonsense"), "kind"),
    (lambda d: d.update(created="9999-12-31"), "the date is in the future"),
    (lambda d: d["results"][0]["metrics"].update(seconds=10**400), "metrics"),
    (lambda d: d["environment"].update(threads=float("nan")), "environment"),
])  # fmt: skip
def test_what_could_not_be_shown_is_refused_with_its_reason(run, change, says):
    """It was stored first and then failed on every page that listed it."""
    assert says in refused(run, change)


def test_a_circle_of_parents_is_refused(run):
    """A circle of parents kept the browser drawing for ever."""

    def circle(data):
        rounds = (r for each in data["results"] for r in each["samples"][0]["rounds"])
        trials = next(r["trials"] for r in rounds if len(r["trials"]) > 1)
        trials[0]["parent"] = trials[1]["node"]

    assert "its own ancestor" in refused(run, circle)


def test_what_is_read_can_be_kept_and_listed(any_run, tmp_path):
    store = RunStore(tmp_path / "runs.sqlite")
    kept = store.add(registry.read(any_run.dumps()))
    assert store.get(kept.id) == kept == any_run


def nested(levels: int) -> Any:
    return [] if levels == 0 else [nested(levels - 1)]


TOO_MUCH = {
    "title": lambda data: data.update(title="x" * 2_000_000),
    "prompt": lambda data: data["study"].update(prompt="x" * 2_000_000),
    "models": lambda data: data["environment"]["target"].update(name="x" * 30_000),
    "token": lambda data: data["results"][0]["samples"][0]["tokens"][0].update(text="x" * 30_000),
    "remark": lambda data: data["results"][0].update(remarks=["x" * 30_000]),
    "depth": lambda data: data["environment"].update(deep=nested(100)),
    "results": lambda data: data.update(results=[
        {**data["results"][0], "samples": [{"prompt": 0, "prompt_length": 1}]}
    ] * 10_001),
    "tokens": lambda data: data["results"][0]["samples"][0].update(tokens=[token(data)] * 100_001),
}  # fmt: skip


def token(data: dict) -> dict:
    return {**data["results"][0]["samples"][0]["tokens"][0], "alternatives": []}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_file_that_no_page_could_show_is_refused_in_one_sentence(run, what):
    """A run with a title of two million characters was imported, and the list of runs froze the
    browser whenever it was opened."""
    data = json.loads(json.dumps(run.to_json()))
    TOO_MUCH[what](data)
    with pytest.raises(InputError, match="an imported run may have at most") as refusal:
        registry.read(json.dumps(data))
    assert len(str(refusal.value)) < 300
