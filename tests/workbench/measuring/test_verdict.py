"""Whether a server's model is the target, by its name, and whether its greedy text is."""

from types import SimpleNamespace

import pytest

import decoders
from decoders import InputError
from tests.workbench.engines.served import MODEL, a_json, served
from tests.workbench.measuring.conftest import comparison
from workbench.engines.addresses import Engine
from workbench.measuring import session
from workbench.measuring.asking import hidden
from workbench.measuring.served import same_model

PROMPT, TOKENS = "Once upon a time", 8


def asked(stories, meter, text: str | None):
    """The last request to a server that writes a text, by default greedy's, and its result."""
    if text is None:
        text = decoders.generate(stories, PROMPT, "greedy", max_new_tokens=TOKENS).text
    choice = {"text": text, "finish_reason": "length"}
    answer = {"choices": [choice], "model": MODEL, "usage": {"completion_tokens": TOKENS}}
    with served(
        lambda call: a_json({"data": [{"id": MODEL}]} if call.body is None else answer)
    ) as server:
        engine = Engine("fast", server.url, kind="other")
        study = comparison("engine:fast", prompt=PROMPT, max_new_tokens=TOKENS, temperature=0.0)
        *_, ended = session.run(stories, study, meter=meter, engines=lambda: {"fast": engine})
    (result,) = ended.run.results
    return server.calls[-1].body, result


def pair(name: str):
    return SimpleNamespace(target=SimpleNamespace(config=SimpleNamespace(name_or_path=name)))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("/models/Qwen3-8B-F16.gguf", "/models/Qwen3-8B"),
        ("Qwen3-8B.gguf", "Qwen/Qwen3-8B"),
        ("stories", "/home/me/assets/stories/target"),
        ("assets/stories/target", "/home/me/assets/stories/target"),
        ("./assets/stories/target/", "/home/me/assets/stories/target"),
    ],
)
def test_names_of_the_target(theirs, ours):
    assert same_model(theirs, pair(ours))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B"),
        ("Other/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("Qwen3-8B-Q4_K_M.gguf", "Qwen/Qwen3-8B"),
        ("assets/stories/draft", "/home/me/assets/stories/target"),
        ("", "Qwen/Qwen3-8B"),
        ("stories", ""),
    ],
)
def test_names_of_others(theirs, ours):
    assert not same_model(theirs, pair(ours))


def test_a_server_that_tells_only_text_is_judged_by_its_text(stories, unmetered):
    """Its text is asked for by text, and where it parts from ours, letters tell."""
    _, result = asked(stories, unmetered, " there was a purple elephant")
    assert result.agreement.verdict in ("fault", "cannot tell")
    assert result.agreement.differing == 1
    assert "It tells no token ids" in result.remarks[0]
    body, result = asked(stories, unmetered, None)
    assert (result.agreement.verdict, body["prompt"]) == ("same", PROMPT)


def test_what_cannot_be_judged_says_why(stories, unmetered, monkeypatch):
    def refused(*_, **__):
        raise InputError("Quantised weights have no float64.")

    monkeypatch.setattr(decoders, "compare_greedy", refused)
    _, result = asked(stories, unmetered, " a dog")
    assert result.agreement is None
    assert result.remarks[-1] == "Its text gets no verdict: Quantised weights have no float64."


def test_an_address_is_hidden_wherever_it_stands():
    engine = Engine("fast", "https://host.example:8443/prefix")
    for words in ("https://host.example:8443/prefix", "host.example:8443", "for host.example"):
        assert "host.example" not in hidden(f"It failed: {words}.", engine)
