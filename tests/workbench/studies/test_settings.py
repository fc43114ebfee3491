"""Names of decoders and of engines, the methods that they stand for, and settings as text."""

import dataclasses
import pickle
from dataclasses import asdict

import pytest

from decoders import InputError, Warping, catalog
from workbench.engines import addresses
from workbench.studies import settings
from workbench.studies.settings import (
    PRESETS,
    Served,
    Settings,
    in_words,
    known,
    method_of,
    parse,
    settings_of,
    shared,
    written,
)


@pytest.mark.parametrize(("data", "message"), [
    ({}, "No decoder is chosen"),
    ({"decoders": [["greedy"]]}, "a list of names"),
    ({"decoders": ["gredy"]}, "did you mean 'greedy'"),
    ({"decoders": ["engine:fast", "engine:fast"]}, "engine:fast is chosen twice"),
    ({"decoders": ["greedy"], "engine:fast": {"beams": 2}}, "no setting 'engine:fast'"),
    ({"decoders": ["greedy"], "temprature": 1}, "did you mean 'temperature'"),
    ({"decoders": ["greedy"], "temperature": -1}, "temperature must be"),
    ({"decoders": ["greedy"], "temperature": "warm"}, "temperature must be"),
    ({"decoders": ["greedy"], "max_new_tokens": 0}, "max_new_tokens must be a whole number"),
    ({"decoders": ["greedy"], "timings": 1.5}, "timings must be"),
    ({"decoders": ["greedy"], "repeats": True}, "repeats must be"),
    ({"decoders": ["greedy"], "chat_template": 1}, "chat_template must be"),
    ({"decoders": ["mtad"], "mtad": {"beam": 2}}, "did you mean 'beams'"),
    ({"decoders": ["mtad"], "mtad": 3}, "one JSON object"),
])  # fmt: skip
def test_what_cannot_be_used_is_refused_in_one_sentence(data, message):
    with pytest.raises(InputError, match=message) as refusal:
        Settings.from_json(data)
    assert "\n" not in str(refusal.value)


def test_a_name_is_that_of_a_decoder_or_of_an_engine():
    assert method_of("mtad", {"beams": 3}) == catalog["mtad"](beams=3)
    engine = method_of("engine:fast")
    assert (engine, engine.name, engine.title) == (Served("fast"), "engine:fast", "Engine fast")
    assert (engine.lossless, engine.uses_draft, engine.law) == (False, False, None)
    assert settings_of("engine:fast") == ()
    assert pickle.loads(pickle.dumps(engine)) == engine
    assert settings.NAME.pattern == addresses.NAME.pattern  # where engines are named
    assert known("engine:a.b-c_1")


@pytest.mark.parametrize("name", ["engine:", "engine:a b", "engine:<b>", f"engine:{'x' * 65}"])
def test_what_is_no_name_is_one_sentence(name):
    assert not known(name)
    with pytest.raises(InputError, match="is no name of an engine"):
        method_of(name)


def test_settings_keep_the_engines_names_and_nothing_else_of_them():
    settings = Settings.from_json({"decoders": ["greedy", "engine:fast"]})
    told = settings.to_json()
    assert told["decoders"] == ["greedy", "engine:fast"]
    assert "engine:fast" not in told
    assert Settings.from_json(told) == settings


def test_the_papers_settings_are_the_papers():
    assert PRESETS["MTAD paper"] == asdict(Warping(temperature=1.0, top_k=20, top_p=0.9))
    assert PRESETS["DSBD paper"] == asdict(Warping(temperature=1.0, top_k=10, top_p=0.8))
    assert PRESETS["greedy (T=0)"]["temperature"] == 0
    mtad, dsbd = catalog["mtad"](), catalog["dsbd"]()
    assert (mtad.draft_length, mtad.beams, mtad.threshold) == (4, 8, 0.1)
    assert (dsbd.draft_length, dsbd.draft_beams) == (2, 4)


def test_drawing_in_words():
    assert in_words({"temperature": 0.7, "top_k": 0, "top_p": 0.9}) == "temperature 0.7, top-p 0.9"
    assert in_words({"temperature": 1.0, "top_k": 20, "top_p": 1.0}) == "temperature 1, top-k 20"
    assert in_words({"temperature": 0.0, "top_k": 20, "top_p": 0.5}) == "temperature 0"
    assert in_words({}) == "temperature 1"
    assert in_words({"min_p": 0.1, "top_n_sigma": 1.5, "temperature_last": True}) == (
        "temperature 1, min-p 0.1, top-nσ 1.5, temperature last"
    )
    assert in_words({"temperature": 2.0, "temperature_last": True}) == "temperature 2"
    for hostile in (None, "hot", [], {}):
        assert in_words({"temperature": hostile, "top_k": hostile, "top_p": hostile}) == ""


FIELDS = [(name, field) for name, method in catalog.items() for field in dataclasses.fields(method)]


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=lambda x: getattr(x, "name", x))
def test_every_default_survives_the_way_to_text_and_back(name, field):
    method = catalog[name](**{field.name: parse(field, written(field, field.default))})
    assert method == catalog[name]()


def test_numbers_are_read_as_the_field_has_them_and_what_is_none_is_left_for_the_check():
    fields = {f.name: f for f in shared()}
    assert parse(fields["top_k"], "5.0") == 5
    assert isinstance(parse(fields["top_k"], 5.0), int)
    assert parse(fields["temperature"], "0.5") == 0.5
    assert parse(fields["temperature"], "warm") == "warm"
    assert parse(fields["chat_template"], "True") is True
