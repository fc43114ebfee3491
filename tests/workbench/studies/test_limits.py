"""What a place allows."""

import pytest

from decoders import InputError
from workbench.studies.limits import PUBLIC_TOKENS, Limits, on_device


def test_ones_own_machine_has_no_limits():
    limits = Limits.from_environment({})
    limits.check(10**6, 1000)
    assert limits.custom_models
    assert not limits.public


@pytest.mark.parametrize("environ", [{"SYSTEM": "spaces"}, {"SPACE_ID": "someone/something"}])
def test_a_space_has(environ):
    limits = Limits.from_environment(environ)
    assert limits.public
    assert not limits.custom_models
    with pytest.raises(InputError, match=f"At most {PUBLIC_TOKENS} new tokens"):
        limits.check(PUBLIC_TOKENS + 1, 1)
    with pytest.raises(InputError, match="repeats"):
        limits.check(1, 100)


def test_its_owner_sets_them():
    environ = {"SYSTEM": "spaces", "ALLOW_CUSTOM_MODELS": "1", "WORKBENCH_MAX_TOKENS": "8", "WORKBENCH_QUEUE": "3"}
    limits = Limits.from_environment(environ)
    assert limits.custom_models
    assert (limits.max_new_tokens, limits.queue_size) == (8, 3)


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_limit_that_is_no_count_is_refused(value):
    with pytest.raises(InputError, match="WORKBENCH_MAX_TOKENS"):
        Limits.from_environment({"WORKBENCH_MAX_TOKENS": value})


def test_jobs_run_as_they_are_without_zero_gpu(monkeypatch):
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    assert on_device(len) is len
