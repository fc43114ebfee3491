"""The endpoint without a server: its answers, and at worst one sentence for odd requests."""

import json
from collections.abc import Callable, Iterator

import gradio as gr
import pytest

from workbench.kinds.comparison.form import CompareTab, endpoints
from workbench.models.presets import tuned
from workbench.page.host import Host
from workbench.studies.settings import Settings

SETTINGS = {"max_new_tokens": 4, "temperature": 0}


def compare(host: Host) -> Callable[..., Iterator[dict]]:
    """The function behind /compare."""
    (job,) = endpoints(host)
    return job


@pytest.fixture
def answer(host) -> Callable[..., dict]:
    call = compare(host)
    return lambda *arguments: list(call(*arguments))[-1]


def test_it_keeps_the_keys_of_version_1_beside_the_run(answer, host):
    """The answer that README.md and docs/UI promised a program.

    Prompt and settings at the top, text, tokens and rounds in each result."""
    found = answer("Once", ["mtad", "greedy"], {**SETTINGS, "mtad": {"threshold": 0.2}})
    assert found["prompt"] == "Once"
    assert found["settings"]["mtad"]["threshold"] == 0.2
    assert [r["decoder"] for r in found["results"]] == ["greedy", "mtad"]
    for result in found["results"]:
        assert {
            "text",
            "tokens",
            "rounds",
            "prompt_length",
            "finished",
            "error",
            "metrics",
            "energy",
            "x_greedy",
        } <= set(result)
        assert "".join(token["text"] for token in result["tokens"]) == result["text"]
    assert found["results"][0]["x_greedy"] == 1.0
    assert found["results"][0]["metrics"]["new_tokens"] == 4
    kept = host.store.get(found["id"]).to_json()
    assert kept.items() <= {**found, "results": kept["results"]}.items()
    json.dumps(found, allow_nan=False)


def test_a_prompt_alone_is_asked_as_the_page_asks_it(answer, host, call, store):
    """It failed without decoders; page, endpoint and terminal began with other settings: top-p 0.9
    and tuned lengths here, the library's there."""
    found = answer("Once")["settings"]
    page = Settings.from_json({**tuned(), **CompareTab.opening["settings"]}).to_json()
    assert found == page | {"chat_template": False}  # which the tests' pair does not have
    assert (found["temperature"], found["top_p"], found["mtad"]["draft_length"]) == (0.7, 0.9, 8)
    status, *_ = call("compare", "Once", "--timings", "1", "--max-new-tokens", "2")
    (kept,) = store.list()
    assert status == 0
    assert store.get(kept.id).settings == found | {"timings": 1, "max_new_tokens": 2}


def test_settings_stand_over_those_of_the_page(answer):
    settings = {**SETTINGS, "mtad": {"beams": 3}}
    found = answer("Once", ["mtad"], settings)["settings"]
    assert (found["temperature"], found["top_p"]) == (0, 0.9)
    assert (found["mtad"]["beams"], found["mtad"]["draft_length"]) == (3, 8)


def test_messages_are_a_prompt(answer, host, byte_tokenizer, monkeypatch):
    """A list was no text."""
    template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}/{% endfor %}"
    monkeypatch.setattr(byte_tokenizer, "chat_template", template)
    messages = [{"role": "system", "content": "Hm"}, {"role": "user", "content": "Hi"}]
    found = answer(messages, ["greedy"], SETTINGS)
    assert found["prompt"] == messages
    (result,) = found["results"]
    assert result["prompt_ids"] == byte_tokenizer("s:Hm/u:Hi/").input_ids
    assert [(p["text"], p["template"]) for p in result["prompt_parts"]] == [
        ("s:", True), ("Hm", False), ("/u:", True), ("Hi", False), ("/", True),
    ]  # fmt: skip
    found = answer("Hi", ["greedy"], {**SETTINGS, "system": "Hm"})
    assert found["results"][0]["prompt_ids"] == result["prompt_ids"]
    found = answer("Hi", ["greedy"], {**SETTINGS, "chat_template": False})
    assert found["results"][0]["prompt_ids"] == byte_tokenizer("Hi").input_ids


def test_a_run_that_cannot_be_kept_is_answered_with_the_reason(answer, host, monkeypatch):
    """A read-only folder once lost the result of /compare, too."""

    def save(run):
        raise OSError("read-only file system")

    monkeypatch.setattr(host.store, "save", save)
    found = answer("Once", ["greedy"], SETTINGS)
    assert found["results"][0]["text"]
    assert found["unkept"] == "This run could not be kept (OSError); the server's log says more."


NAMES = ["greedy"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("", NAMES, {}), "The prompt is empty"),
        ((" \n", NAMES, {}), "The prompt is empty"),
        ((7, NAMES, {}), "The prompt must be a text or a list of messages, not int"),
        ((None, NAMES, {}), "The prompt must be a text"),
        ((["Once"], NAMES, {}), "Message 1 must have a role and a content"),
        (({"text": "Once"}, NAMES, {}), "a text or a list of messages, not dict"),
        (("x" * 1_000_001, NAMES, {}), "shorten it to at most 1,000,000"),
        (("half a \ud800 pair", NAMES, {}), "lone surrogate"),
        (("Once", [], {}), "No decoder is chosen"),
        (("Once", "greedy", {}), "`decoders` must be a list of names"),
        (("Once", {"greedy": 1}, {}), "`decoders` must be a list of names"),
        (("Once", [["greedy"]], {}), "`decoders` must be a list of names"),
        (("Once", [7], {}), "`decoders` must be a list of names"),
        (("Once", ["gredy"], {}), "greedy"),
        (("Once", ["greedy", "greedy"], {}), "chosen twice"),
        (("Once", NAMES, {"decoders": ["mtad"]}), "name them in `decoders` alone"),
        (("Once", NAMES, []), "`settings` must be one JSON object"),
        (("Once", NAMES, ["temperature"]), "`settings` must be one JSON object"),
        (("Once", NAMES, 7), "`settings` must be one JSON object"),
        (("Once", NAMES, "hot"), "`settings` must be one JSON object"),
        (("Once", NAMES, {"temperatur": 1}), "temperature"),
        (("Once", NAMES, {"temperature": "hot"}), "temperature must be"),
        (("Once", NAMES, {"temperature": None}), "temperature must be"),
        (("Once", NAMES, {"temperature": float("nan")}), "temperature must be"),
        (("Once", NAMES, {"temperature": [1]}), "temperature must be"),
        (("Once", NAMES, {"max_new_tokens": 10**400}), "max_new_tokens must be"),
        (("Once", NAMES, {"max_new_tokens": 1.5}), "max_new_tokens must be"),
        (("Once", NAMES, {"max_new_tokens": True}), "max_new_tokens must be"),
        (("Once", NAMES, {"max_new_tokens": 99_999}), "positions of the models"),
        (("Once", NAMES, {"greedy": 5}), "The settings of greedy must be one JSON object"),
        (("Once", ["mtad"], {"mtad": {"beans": 3}}), "beams"),
        (("Once", ["mtad"], {"mtad": {"beams": "many"}}), "beams must be"),
        (("Once", ["lookup"], {"lookup": {"references": 5}}), ""),
        (("Once", NAMES, {"chat_template": True}), "chat template"),
        (("Once", NAMES, {"chat_template": "yes"}), "chat_template must be"),
        (("Once", NAMES, {"system": "Rhyme."}), "A system message needs the chat template"),
        (([{"role": "user", "content": "Hi"}], NAMES, {}), "has no chat template"),
        (([{"role": "robot", "content": "Hi"}], NAMES, {}), "Message 1 has the role 'robot'"),
        (([], NAMES, {}), "The prompt is empty"),
    ],
)  # fmt: skip
def test_whatever_is_sent_is_answered_in_one_sentence(answer, host, caplog, arguments, says):
    """Settings as a list, a prompt as a number and half an emoji once gave tracebacks."""
    with pytest.raises(gr.Error) as refusal:
        answer(*arguments)
    sentence = refusal.value.message
    assert says in sentence
    assert sentence.rstrip().endswith((".", "?"))
    assert "\n" not in sentence
    assert "Something went wrong" not in sentence
    assert not refusal.value.print_exception
    assert caplog.records == []
    assert host.store.list() == []


def test_a_client_that_leaves_ends_its_job(host):
    answers = compare(host)("Once", NAMES, {"max_new_tokens": 400, "timings": 5})
    next(answers)
    answers.close()
    assert list(compare(host)("next", NAMES, SETTINGS))[-1]["prompt"] == "next"
