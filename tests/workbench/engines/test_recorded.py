"""Answers of real servers, recorded in November 2026, read by their dialects."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import pytest

from decoders import InputError, Warping
from tests.workbench.engines.served import Call, Reply, served
from workbench.engines.addresses import Engine
from workbench.engines.client import Client, Record, connect
from workbench.engines.dialects import Query

RECORDED = {
    file.stem: json.loads(file.read_text(encoding="utf-8"))
    for file in sorted(Path(__file__).parent.glob("recorded/*.json"))
}
TOKENS = 24


def body_of(call: dict) -> bytes:
    answer = call["answer"]
    return ("\n".join(answer) + "\n" if isinstance(answer, list) else json.dumps(answer)).encode()


def replayed(name: str):
    """Answers what the real server answered to the same request; KeyError for others."""

    def key(path: str, body: dict | None) -> str:
        return path + json.dumps(body, sort_keys=True)

    known = {key(call["path"], call["request"]): call for call in RECORDED[name]["calls"]}

    def answers(call: Call) -> Reply:
        found = known[key(call.path, call.body)]
        return Reply(body_of(found), found["status"], type=found["type"])

    return answers


@pytest.fixture(params=RECORDED)
def name(request) -> str:
    return request.param


@pytest.fixture
def client(name):
    with served(replayed(name)) as server:
        client = connect(Engine(name, server.url))
        yield client
        client.wire.close()


def prompt(name: str):
    """The opening, as ids if the server takes them."""
    bodies = [call["request"] for call in RECORDED[name]["calls"] if call["request"]]
    found = bodies[0]["prompt"]
    return tuple(found) if isinstance(found, list) else found


def asked(client: Client, name: str) -> list[Record]:
    """Greedy, streamed and whole."""
    query = Query(prompt(name), TOKENS, Warping(0.0))
    return [client.ask(dataclasses.replace(query, stream=each)) for each in (True, False)]


def test_the_kind_and_the_model_are_found_out(client, name):
    assert client.dialect.kind == RECORDED[name]["kind"]
    assert client.model == RECORDED[name]["calls"][0]["answer"]["data"][0]["id"]


def test_a_stream_and_a_whole_answer_say_the_same(client, name):
    streamed, whole = asked(client, name)
    assert (streamed.text, streamed.tokens) == (whole.text, whole.tokens)
    assert (streamed.finished, streamed.note) == (whole.finished, whole.note) == ("length", "")
    assert streamed.text.startswith(" her nest")
    assert whole.count == TOKENS


def test_the_times_are_those_of_the_tokens(client, name):
    streamed, _ = asked(client, name)
    assert 0 <= streamed.seconds - streamed.arrivals[-1][0] <= streamed.after_first
    assert all(a <= b for (a, _), (b, _) in pairwise(streamed.arrivals))
    if streamed.tokens is not None:
        assert sum(tokens for _, tokens in streamed.arrivals) == len(streamed.tokens) == TOKENS


def test_refusals_are_one_sentence(client, name):
    """Each server was asked for a model that it does not serve; one takes any name as its own."""
    client.model = "another-model"
    query = Query(prompt(name), TOKENS, Warping(0.0), 0, stream=False)
    if name == "llama-cpp-python":
        assert client.ask(query).text.startswith(" her nest")
        return
    with pytest.raises(InputError) as error:
        client.ask(query)
    assert "another-model" in str(error.value)
    assert "\n" not in str(error.value)
