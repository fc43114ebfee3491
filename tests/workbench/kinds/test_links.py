"""A link holds the settings that differ from the defaults; unusable ones are named and dropped."""

import dataclasses
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders import catalog
from workbench.kinds.batch import Batch
from workbench.kinds.comparison import Comparison
from workbench.kinds.registry import Link, from_query, to_query
from workbench.studies.prompts import Prompt, PromptSet, built_in
from workbench.studies.settings import Settings


def read(query: str) -> Link:
    return from_query(dict(parse_qsl(query, keep_blank_values=True)))


def test_a_comparison_there_and_back():
    data = {
        "decoders": ["speculative", "dsbd", "mtad"],
        "temperature": 0.5,
        "top_k": 20,
        "min_p": 0.1,
        "top_n_sigma": 1.5,
        "temperature_last": True,
        "speculative": {"draft_length": "auto"},
        "dsbd": {"beams": 3, "keep_one": True},
        "mtad": {"threshold": 0.25},
    }
    study = Comparison("é 🦊 & ${x}=1\n", Settings.from_json(data))
    link = read(to_query("comparison", study.to_json()))
    assert (link.kind, link.faults) == ("comparison", [])
    assert Comparison.from_json(link.data) == study


def test_a_batch_there_and_back():
    settings = Settings.from_json(
        {"decoders": ["lookup"], "temperature": 0.0, "lookup": {"copy": 3}}
    )
    study = Batch(
        built_in("refrains").first(5),
        settings,
        (2, 8),
        ("dynamic",),
        False,
        cache_mb=2.5,
        prefill_chunk=16,
    )
    query = to_query("batch", study.to_json())
    assert query.startswith(
        "kind=batch&prompts=refrains&count=5&sizes=2%2C8&schemes=dynamic&ignore_eos=False&"
    )
    link = read(query)
    assert (link.kind, link.faults) == ("batch", [])
    assert Batch.from_json(link.data) == study


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
    found = Settings.from_json({**start, **link.data.get("settings", {})})
    assert {m.name for m in found.methods} == decoders
    assert dataclasses.replace(study.settings, methods=found.methods) == found
    assert not {
        name for name, value in link.data.get("settings", {}).items() if start.get(name) == value
    }


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"temperatur": "1"}, "'temperature'"),
        ({"temperature": "hot"}, "temperature must be"),
        ({"decoders": "gredy"}, "'greedy'"),
        ({"mtad.beans": "1"}, "'mtad.beams'"),
        ({"mtad.threshold": "7"}, "threshold"),
        ({"kind": "batch", "prompts": "novels"}, "stories"),
        ({"kind": "batch", "count": "0"}, "from 1 to"),
        ({"kind": "batch", "sizes": "1,two"}, "whole numbers"),
        ({"kind": "batch", "sizes": "9" * 5000}, "whole numbers"),
        ({"kind": "batch", "schemes": "vanila"}, "'vanilla'"),
        ({"kind": "batch", "cache_mb": "much"}, "cache_mb"),
    ],
)
def test_what_cannot_be_used_is_left_out_and_named_and_the_rest_is_taken(query, word):
    """One unknown parameter dropped all valid settings of a link."""
    link = from_query({"seed": "7", **query})
    assert link.data == {"settings": {"seed": 7}}
    assert len(link.faults) == 1
    assert word in link.faults[0]


def test_parameters_of_somebody_else_are_passed_over():
    """`utm_source`, `fbclid` and `__sign` raised an alert of 60 names and dropped valid
    settings."""
    link = from_query(
        {"utm_source": "mail", "fbclid": "x", "__sign": "y", "__theme": "dark", "top_k": "5"}
    )
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
