"""A comparison is one prompt and its decoders, greedy first."""

import pytest

from decoders import InputError
from workbench.kinds.comparison import Comparison
from workbench.studies.settings import Settings


def comparison(*names: str, prompt="Once", **shared) -> Comparison:
    return Comparison(prompt, Settings.from_json({"decoders": list(names), **shared}))


def test_greedy_runs_first_and_all_decoders_of_a_seed_before_the_next_seed():
    jobs = comparison("mtad", "greedy", repeats=2, seed=5).jobs()
    assert [(j.method.name, j.repeat, j.seed) for j in jobs] == [
        ("greedy", 0, 5), ("mtad", 0, 5), ("greedy", 1, 6), ("mtad", 1, 6),
    ]  # fmt: skip


def test_each_job_is_alone_and_keeps_its_trace():
    (job,) = comparison("mtad").jobs()
    assert (job.batch_size, job.scheme, job.keep, job.ignore_eos) == (1, "unpadded", "trace", False)
    assert job.reads_prompts_apart


def test_it_comes_back_from_its_json():
    study = comparison("mtad", "greedy", prompt="é 🦊\n", temperature=0.5, mtad={"beams": 3})
    assert Comparison.from_json(study.to_json()) == study
    assert study.title == "é 🦊\n"
    assert [p.text for p in study.prompts] == ["é 🦊\n"]


@pytest.mark.parametrize(
    "prompt", ["", "  \n", None, 5, ["Once"], {"prompt": "Once"}, "half \ud83e"]
)
def test_a_prompt_that_is_no_text_is_one_sentence(prompt):
    """The endpoint answered numbers, lists, objects and half a surrogate pair with tracebacks."""
    with pytest.raises(InputError) as refusal:
        Comparison.from_json({"prompt": prompt, "settings": {"decoders": ["greedy"]}})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("settings", [None, [], "greedy", 5, {"decoders": [5]}])
def test_settings_that_are_none_are_one_sentence(settings):
    """The endpoint answered settings given as a list with a traceback."""
    with pytest.raises(InputError) as refusal:
        Comparison.from_json({"prompt": "Once", "settings": settings})
    assert "\n" not in str(refusal.value)
