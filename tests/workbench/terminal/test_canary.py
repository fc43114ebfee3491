"""`python -m workbench canary`: a server by its URL or its name, and what cannot be tested."""

import json

import pytest

from tests.workbench.engines.canary_servers import drawing, serving
from tests.workbench.engines.served import a_json, served
from workbench.engines.addresses import LISTED

PREFIX = "<b>abab"
FLAGS = ("--prefix", PREFIX, "--tokens", "2", "--draws", "40")


@pytest.fixture(scope="module")
def answers(pair):
    return serving(pair, drawing(pair.target), [PREFIX], 40, 2)


@pytest.fixture
def url(answers):
    with served(answers) as server:
        yield server.url


def test_a_server_by_its_url(call, url, tmp_path):
    file = tmp_path / "report.json"
    status, out, errors = call("canary", url, *FLAGS, "--json", str(file))
    assert (status, errors) == (2, "")
    assert "vllm 0.32.0, model stories\n" in out
    assert "Control: keeps drafts that it should refuse, off by a total variation of" in out
    assert "Greedy after '<b>abab': The texts are the same" in out
    assert "Cannot tell: 40 draws are too few to find the controls; draw more." in out
    assert json.loads(file.read_text())["verdict"] == "cannot tell"


def test_a_server_of_another_law_by_its_name(call, pair, monkeypatch):
    def one_token(prompt, texts, tokens):
        return [[9] * tokens] * texts

    with served(serving(pair, one_token, [PREFIX], 200, 2)) as server:
        monkeypatch.setenv(LISTED, f"mine={server.url} key=MINE")
        monkeypatch.setenv("MINE", "sk-secret")
        status, out, errors = call("canary", "mine", *FLAGS, "--draws", "200")
        assert server.calls[-1].key == "Bearer sk-secret"
    assert status == 1
    assert "Unlike the model: 200 draws contradict its distribution." in out
    assert "sk-secret" not in out + errors


def test_a_greedy_text_in_another_number_type_asks_for_it(call, answers):
    def wrong(asked):
        reply = answers(asked)
        if asked.body and asked.body["temperature"] == 0 and asked.body["max_tokens"] == 32:
            answer = json.loads(reply.body)
            answer["choices"][0]["token_ids"] = [7] * 32
            return a_json(answer)
        return reply

    with served(wrong) as server:
        status, out, _ = call("canary", server.url, *FLAGS)
    assert status == 1
    assert "Fault at new token 1" in out
    assert "--served-in" in out
