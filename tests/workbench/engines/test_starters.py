"""Servers that are started: their entries in the file, and their commands."""

import pytest

from decoders import InputError
from workbench.engines.addresses import FILE, LISTED, Engine, engines, starters
from workbench.engines.starters import Starter

START = "vllm serve 'my model' --port {port}"
DRAFT = """--speculative-config '{"num_speculative_tokens": {length}, "model": "a/b"}'"""


def of_file(tmp_path, text: str) -> dict[str, str]:
    file = tmp_path / "engines.toml"
    file.write_text(text)
    return {FILE: str(file)}


def entry(**fields: str) -> str:
    return "[slow]\n" + "".join(f"{name} = '''{value}'''\n" for name, value in fields.items())


def test_an_entry_with_a_command_is_a_starter_and_no_running_engine(tmp_path):
    environ = of_file(tmp_path, entry(start=START, draft=DRAFT, model="m", kind="vllm", gpus="2"))
    environ[LISTED] = "fast=http://127.0.0.1:8000"
    assert engines(environ) == {"fast": Engine("fast", "http://127.0.0.1:8000")}
    (found,) = starters(environ).values()
    assert found == Starter(
        "slow",
        ("vllm", "serve", "my model", "--port", "{port}"),
        ("--speculative-config", '{"num_speculative_tokens": {length}, "model": "a/b"}'),
        "m",
        "vllm",
        2,
    )


def test_the_words_of_a_command_are_not_a_shells(tmp_path):
    start = "serve $(reboot) ; `id` > x | y --port={port}"
    (found,) = starters(of_file(tmp_path, entry(start=start, draft=DRAFT))).values()
    assert found.command(0, ["--flag"], 81) == (
        "serve", "$(reboot)", ";", "`id`", ">", "x", "|", "y", "--port=81", "--flag",
    )  # fmt: skip
    assert found.command(3, [], 81)[-2:] == (
        "--speculative-config",
        '{"num_speculative_tokens": 3, "model": "a/b"}',
    )
    assert found.drafting(0) == ()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"start": "serve"}, "`start` of the engine slow must say where {port} stands"),
        ({"start": ""}, "`start` of the engine 'slow' must be text"),
        ({"start": "serve 'x --port {port}"}, "is no command: no closing quotation"),
        ({"start": START, "draft": "--draft 3"}, "must say where {length} stands"),
        ({"start": START, "url": "http://h"}, "an engine with `start` has no field 'url'"),
        ({"start": START, "key": "KEY"}, "an engine with `start` has no field 'key'"),
        ({"start": START, "gpus": "-1"}, "`gpus` of the engine slow must be text"),
        ({"start": START, "gpus": "two"}, "`gpus` of the engine slow must be text"),
        ({"draft": DRAFT}, "has no `url`"),
        ({"url": "http://h", "draft": DRAFT}, "an engine has no field 'draft'"),
    ],
)
def test_an_entry_that_cannot_be_used_is_one_sentence(tmp_path, fields, says):
    with pytest.raises(InputError, match=says.replace("{", r"\{")) as error:
        starters(of_file(tmp_path, entry(**fields)))
    assert "\n" not in str(error.value)


def test_the_list_of_the_environment_starts_nothing():
    with pytest.raises(InputError, match="has no field 'url'"):
        starters({LISTED: "slow=http://h start=reboot"})


def test_a_name_is_given_once(tmp_path):
    environ = of_file(tmp_path, entry(start=START))
    with pytest.raises(InputError, match="a second time"):
        starters({**environ, LISTED: "slow=http://h"})
