"""Recording keeps what a server answered, word for word."""

import json

import pytest

from tests.workbench.engines.served import Reply, a_json, served
from tools.engines import record
from tools.engines.record import Question, answered, calls
from workbench.engines.dialects.table import DIALECTS


def test_an_answer_is_kept_with_its_question():
    with served(lambda call: a_json({"got": call.body}, 400)) as server:
        found = answered(server.url, Question("/completion", {"prompt": "Once"}))
    assert found == {
        "method": "POST",
        "path": "/completion",
        "request": {"prompt": "Once"},
        "status": 400,
        "type": "application/json",
        "answer": {"got": {"prompt": "Once"}},
    }


def test_of_the_counters_only_tokens_are_kept():
    lines = [
        "# TYPE vllm:spec_decode_num_drafts_total counter",
        'vllm:spec_decode_num_drafts_total{engine="0"} 3.0',
        'vllm:spec_decode_num_drafts_created{engine="0"} 1.79e+09',
        "process_cpu_seconds_total 12.5",
        "llamacpp:tokens_predicted_total 40",
    ]
    with served(lambda call: Reply("\n".join(lines).encode(), type="text/plain")) as server:
        found = answered(server.url, Question("/metrics"))
    assert found["answer"] == [lines[1], lines[4]]


@pytest.mark.parametrize("name", record.DIALECTS)
def test_a_server_is_asked_what_the_client_asks(name):
    dialect = record.DIALECTS[name]
    assert dialect in DIALECTS.values()
    with served(lambda call: a_json({})) as server:
        calls(name, server.url, "stories")
    asked = [call.body for call in server.calls if call.path == dialect.path]
    assert {body["stream"] for body in asked} == {True, False}
    assert {body["temperature"] for body in asked} == {0.0, 1.0}
    assert isinstance(asked[0]["prompt"], list) == dialect.takes_ids
    assert "another-model" in {body["model"] for body in asked}


def test_every_server_that_can_be_recorded_is_recorded():
    for name, dialect in record.DIALECTS.items():
        found = json.loads((record.RECORDED / f"{name}.json").read_text(encoding="utf-8"))
        assert (found["engine"], found["kind"]) == (name, dialect.kind)
        assert found["version"]
        assert found["date"]
        assert found["command"]
