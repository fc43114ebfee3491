"""Schemes of batches, and the limits of a place."""

import pytest

from decoders import InputError
from workbench.kinds.batch import Batch
from workbench.kinds.comparison import Comparison
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.settings import Settings
from workbench.studies.study import MOST, Limits

SPACE = Limits.from_environment({"SYSTEM": "spaces"})


def comparison(**shared) -> Comparison:
    return Comparison("Once", Settings.from_json({"decoders": ["greedy"], **shared}))


def test_ones_own_machine_has_no_limits():
    limits = Limits.from_environment({})
    limits.check(comparison(max_new_tokens=100_000, repeats=1000))
    assert limits.custom_models
    assert not limits.public


@pytest.mark.parametrize("environ", [{"SYSTEM": "spaces"}, {"SPACE_ID": "someone/something"}])
def test_a_space_has(environ):
    limits = Limits.from_environment(environ)
    assert limits.public
    assert not limits.custom_models
    limits.check(comparison(max_new_tokens=MOST["max_new_tokens"]))
    with pytest.raises(InputError, match=f"At most {MOST['max_new_tokens']} new tokens"):
        limits.check(comparison(max_new_tokens=MOST["max_new_tokens"] + 1))
    with pytest.raises(InputError, match="repeats"):
        limits.check(comparison(repeats=100))


def test_a_space_bounds_the_prompts_of_a_batch():
    settings = comparison().settings
    prompts = PromptSet("many", tuple(Prompt("x", f"many, line {i}") for i in range(25)))
    SPACE.check(Batch(prompts.first(24), settings))
    with pytest.raises(InputError, match="At most 24 prompts"):
        SPACE.check(Batch(prompts, settings))


def test_its_owner_sets_them():
    own = {"ALLOW_CUSTOM_MODELS": "1", "WORKBENCH_MAX_TOKENS": "8", "WORKBENCH_QUEUE": "3"}
    limits = Limits.from_environment({"SYSTEM": "spaces", **own})
    assert limits.custom_models
    assert (limits.most["max_new_tokens"], limits.queue_size) == (8, 3)


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_limit_that_is_no_count_is_refused(value):
    with pytest.raises(InputError, match="WORKBENCH_MAX_TOKENS"):
        Limits.from_environment({"WORKBENCH_MAX_TOKENS": value})
