"""Settings and prompts by name."""

from dataclasses import asdict

import pytest

from decoders import Warping, catalog
from workbench.studies.settings import (
    OPENING,
    PROMPTS,
    SETTINGS,
    SHOWN,
    Settings,
    described,
    named,
    written,
)


def test_the_papers_settings_are_the_papers():
    assert SETTINGS["MTAD paper"] == asdict(Warping(temperature=1.0, top_k=20, top_p=0.9))
    assert SETTINGS["DSBD paper"] == asdict(Warping(temperature=1.0, top_k=10, top_p=0.8))
    assert SETTINGS["greedy (T=0)"]["temperature"] == 0
    mtad, dsbd = catalog["mtad"](), catalog["dsbd"]()
    assert (mtad.draft_length, mtad.beams, mtad.threshold) == (4, 8, 0.1)
    assert (dsbd.draft_length, dsbd.draft_beams) == (2, 4)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_preset_says_how_tokens_are_drawn_and_nothing_else(name):
    """Presets silently reset decoders and tokens."""
    assert set(SETTINGS[name]) == set(asdict(Warping()))
    Settings(SHOWN, **SETTINGS[name])
    assert named(SETTINGS[name]) == name
    assert described(name).startswith(f"{name}: temperature ")


def test_what_follows_no_preset_has_no_name():
    for other in ({"top_k": 21}, {"min_p": 0.1}, {"top_n_sigma": 1}, {"temperature_last": True}):
        assert named({**SETTINGS["MTAD paper"], **other}) is None
    assert named({}) is None


def test_what_the_page_opens_with_leaves_the_defaults_alone():
    """Links, the endpoint and the terminal mean what they meant."""
    assert SETTINGS[OPENING]["temperature"] < Settings(SHOWN).temperature == 1.0
    assert (Settings(SHOWN).top_k, Settings(SHOWN).top_p) == (0, 1.0)


def test_drawing_in_words():
    assert written({"temperature": 0.7, "top_k": 0, "top_p": 0.9}) == "temperature 0.7, top-p 0.9"
    assert written({"temperature": 1.0, "top_k": 20, "top_p": 1.0}) == "temperature 1, top-k 20"
    assert written({"temperature": 0.0, "top_k": 20, "top_p": 0.5}) == "temperature 0"
    assert written({}) == "temperature 1"
    assert written({"min_p": 0.1, "top_n_sigma": 1.5, "temperature_last": True}) == (
        "temperature 1, min-p 0.1, top-nσ 1.5, temperature last"
    )
    assert written({"temperature": 2.0, "temperature_last": True}) == "temperature 2"
    for hostile in (None, "hot", [], {}):
        assert written({"temperature": hostile, "top_k": hostile, "top_p": hostile}) == ""


def test_example_prompts_are_texts():
    assert len(PROMPTS) >= 3
    assert all(text.strip() == text for text in PROMPTS.values())
