"""Where engines are, and each way in which the environment can be wrong."""

import dataclasses

import pytest

from decoders import InputError
from workbench.engines.addresses import GONE, LISTED, Engine, engines, named

LOCAL = "http://127.0.0.1:8000"


def test_engines_of_the_environment():
    listed = (
        f"fast={LOCAL} key=FAST_KEY model=stories; other=http://[::1]:81 ;"
        " slow=https://host.example/prefix/v1/ kind=vllm"
    )
    assert engines({LISTED: listed}) == {
        "fast": Engine("fast", LOCAL, "FAST_KEY", "stories"),
        "other": Engine("other", "http://[::1]:81"),
        "slow": Engine("slow", "https://host.example/prefix", kind="vllm"),
    }
    assert engines({}) == {}


def test_a_name_or_in_the_terminal_a_url():
    environ = {LISTED: f"fast={LOCAL}"}
    assert named("fast", environ) == Engine("fast", LOCAL)
    assert named(f"{LOCAL}/v1", environ) == Engine("127.0.0.1:8000", LOCAL)
    with pytest.raises(InputError, match="There is no engine 'fats': did you mean 'fast'"):
        named("fats", environ)
    with pytest.raises(InputError, match=f"list engines in {LISTED}, or give a URL"):
        named("fast", {})


@pytest.mark.parametrize(("url", "says"), [
    ("ftp://host", "must begin with http"),
    ("127.0.0.1:8000", "must begin with http"),
    ("http://", "has no host"),
    ("http://host:0", "has no host or no port"),
    (f"http://{'a' * 64}.org", "cannot be read"),
    ("http://user:secret@host", "no user and no password"),
    ("http://host/?key=secret", "must end with its host"),
    ("http://host/\x7f", "must be a URL"),
])  # fmt: skip
def test_a_url_that_cannot_be_called_is_one_sentence_without_its_secrets(url, says):
    """Some hosts that only httpx refuses once ended a command in a traceback."""
    with pytest.raises(InputError, match=says) as error:
        engines({LISTED: f"x={url}"})
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("listed", "says"), [
    (LOCAL, "must be a list as in"),
    (f"x={LOCAL} sk-secret", "must be a list as in"),
    (f"x={LOCAL} modle=a", "no field 'modle': did you mean 'model'"),
    (f"x={LOCAL} key=", "`key` of the engine 'x' must be text"),
    (f"<b>={LOCAL}", "the name '<b>' must have letters"),
    (f"x={LOCAL} start=vllm", "the engine 'x' has `start`, but nothing starts servers"),
])  # fmt: skip
def test_a_list_that_cannot_be_read_is_one_sentence(listed, says):
    with pytest.raises(InputError, match=says) as error:
        engines({LISTED: listed})
    assert "secret" not in str(error.value)


def test_a_file_of_engines_is_gone_and_one_sentence_says_what_to_take():
    with pytest.raises(InputError, match=f"{GONE} is gone; write its engines into {LISTED}"):
        engines({GONE: "engines.toml"})


def test_a_key_is_read_when_it_is_used_and_kept_nowhere():
    engine = Engine("x", LOCAL, key="X_KEY")
    assert engine.secret({"X_KEY": "sk-secret"}) == "sk-secret"
    assert Engine("x", LOCAL).secret({}) is None
    assert "secret" not in repr(dataclasses.asdict(engine))


@pytest.mark.parametrize("value", ["sk-secret\n", "sk-\r\nsecret", "sk secret", "sk-sécret", "\0"])
def test_a_key_that_fits_no_header_is_one_sentence(value):
    with pytest.raises(InputError, match="holds a line break, a space or another") as error:
        Engine("x", LOCAL, key="X_KEY").secret({"X_KEY": value})
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["X_KEY", "sk-secret"])
def test_a_variable_that_is_not_set_may_be_a_key_and_is_not_shown(name):
    with pytest.raises(InputError, match="must name an environment variable that is set") as error:
        Engine("x", LOCAL, key=name).secret({})
    assert name not in str(error.value)
