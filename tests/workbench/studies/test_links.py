"""A link says all that differs from the defaults, and says what it does not understand."""

from urllib.parse import parse_qsl

import pytest

from decoders import InputError
from workbench.studies import links
from workbench.studies.settings import Settings


def test_there_and_back():
    data = {
        "decoders": ["speculative", "dsbd", "mtad"],
        "temperature": 0.5,
        "top_k": 20,
        "speculative": {"draft_length": "auto"},
        "dsbd": {"beams": 3, "keep_one": True},
        "mtad": {"threshold": 0.25},
    }
    settings = Settings.from_json(data)
    query = links.to_query("é 🦊 & ${x}=1\n", settings.to_json())
    found = links.from_query(dict(parse_qsl(query, keep_blank_values=True)))
    assert found.pop("prompt") == "é 🦊 & ${x}=1\n"
    assert Settings.from_json(found) == settings


def test_defaults_are_left_out():
    query = links.to_query("x", Settings.from_json({"decoders": ["greedy", "mtad"]}).to_json())
    assert query == "prompt=x&decoders=greedy%2Cmtad"


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ({"temperatur": "1"}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"decoders": "gredy"}, "greedy"),
        ({"decoders": ""}, "No decoder"),
        ({"mtad.beans": "1"}, "mtad.beams"),
        ({"decoders": "mtad", "mtad.threshold": "7"}, "threshold"),
    ],
)
def test_what_it_does_not_understand_it_names(query, word):
    with pytest.raises(InputError, match=word):
        links.from_query(query)


def test_words_of_the_page_are_no_settings():
    assert links.from_query({"run": "0123", "__theme": "dark"}) == {}
