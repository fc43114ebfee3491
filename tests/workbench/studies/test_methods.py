"""Names of decoders and of engines, and the methods that they stand for."""

import pickle

import pytest

from decoders import InputError, catalog
from workbench.engines import addresses
from workbench.studies import settings
from workbench.studies.settings import Served, Settings, known, method_of, settings_of


def test_a_name_is_that_of_a_decoder_or_of_an_engine():
    assert method_of("mtad", {"beams": 3}) == catalog["mtad"](beams=3)
    engine = method_of("engine:fast")
    assert (engine, engine.name, engine.title) == (Served("fast"), "engine:fast", "Engine fast")
    assert (engine.lossless, engine.uses_draft, engine.law) == (False, False, None)
    assert settings_of("engine:fast") == ()
    assert pickle.loads(pickle.dumps(engine)) == engine


def test_names_are_the_same_here_and_where_engines_are_named():
    assert settings.NAME.pattern == addresses.NAME.pattern


@pytest.mark.parametrize("name", ["engine:", "engine:a b", "engine:<b>", f"engine:{'x' * 65}"])
def test_what_is_no_name_is_one_sentence(name):
    assert not known(name)
    with pytest.raises(InputError, match="is no name of an engine"):
        method_of(name)


@pytest.mark.parametrize("name", ["greedy", "engine:fast", "engine:a.b-c_1"])
def test_known_names(name):
    assert known(name)


def test_settings_keep_the_engines_names_and_nothing_else_of_them():
    settings = Settings.from_json({"decoders": ["greedy", "engine:fast"]})
    told = settings.to_json()
    assert told["decoders"] == ["greedy", "engine:fast"]
    assert "engine:fast" not in told
    assert Settings.from_json(told) == settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"decoders": ["engine:fast", "engine:fast"]}, "engine:fast is chosen twice"),
        ({"decoders": ["gredy"]}, "did you mean 'greedy'"),
        ({"decoders": ["greedy"], "engine:fast": {"beams": 2}}, "no setting 'engine:fast'"),
    ],
)
def test_settings_that_cannot_be_used(settings, says):
    with pytest.raises(InputError, match=says):
        Settings.from_json(settings)
