"""A draw is the same prompt many times, each with the next seed.

It comes back from JSON and from its link."""

from urllib.parse import parse_qsl

import pytest

from decoders import InputError
from workbench.kinds.draw import MOST_AT_ONCE, Draw
from workbench.kinds.registry import from_query, to_query
from workbench.studies.settings import Settings
from workbench.studies.study import PUBLIC_DRAWS, Limits


def draw(draws: int = 100, **shared) -> Draw:
    data = {"decoders": ["multinomial", "dsbd"], "draws": draws, **shared}
    return Draw.from_json({"prompt": "é 🦊 &\n", "settings": data})


def test_its_defaults_are_a_hundred_texts_of_sixteen_tokens_timed_once():
    study = draw()
    assert (study.draws, study.settings.max_new_tokens, study.settings.timings) == (100, 16, 1)
    assert len(study.prompts) == 100


@pytest.mark.parametrize("draws", [10, 64, 65, 97, 100, 1000])
def test_batches_are_small_enough_to_stop_and_hardly_draw_twice(draws):
    """The last batch of a job is filled up from the start.

    A batch of 64 would have drawn 28 of 100 texts twice."""
    job, _ = draw(draws).jobs()
    assert job.batch_size <= MOST_AT_ONCE
    batches = -(-draws // job.batch_size)
    assert 0 <= batches * job.batch_size - draws < batches
    assert (job.keep, job.scheme, job.max_cache_bytes) == ("text", "dynamic", 512_000_000)


def test_it_comes_back_from_its_json_and_its_link():
    study = draw(
        200, temperature=0.5, cache_mb=None, dsbd={"draft_beams": 3}, timings=2, max_new_tokens=64
    )
    assert Draw.from_json(study.to_json()) == study
    link = from_query(dict(parse_qsl(to_query("draw", study.to_json()), keep_blank_values=True)))
    assert (link.kind, link.faults) == ("draw", [])
    assert Draw.from_json(link.data) == study
    assert to_query("draw", draw().to_json()).count("=") == 3  # kind, prompt, decoders


def test_a_public_place_limits_the_draws_and_not_the_prompts():
    limits = Limits.from_environment({"SYSTEM": "spaces"})
    limits.check(draw(PUBLIC_DRAWS))
    with pytest.raises(InputError, match=f"At most {PUBLIC_DRAWS} draws"):
        limits.check(draw(PUBLIC_DRAWS + 1))
    assert limits.of_settings["draws"] == PUBLIC_DRAWS
    Limits().check(draw(1000))


@pytest.mark.parametrize("settings", [None, [], "many"])
def test_settings_that_are_none_are_one_sentence(settings):
    with pytest.raises(InputError, match="must be one JSON object"):
        Draw.from_json({"prompt": "x", "settings": settings})


def test_each_seed_is_drawn_once():
    with pytest.raises(InputError, match="leave repeats at 1"):
        Draw("x", Settings.from_json({"decoders": ["greedy"], "repeats": 2}))
