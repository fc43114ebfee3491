"""A client of a server that behaves, and of servers that do not."""

import dataclasses
import json
import socket
import threading
import time
from itertools import count

import pytest

from decoders import InputError, Warping
from tests.workbench.engines.served import (
    MODEL,
    Reply,
    a_json,
    a_stream,
    chunk,
    served,
    usage,
    vllm,
)
from workbench.engines.addresses import Engine
from workbench.engines.client import Bounds, Client, Wire, connect
from workbench.engines.dialects import DIALECTS, OTHER, VLLM, Dialect, Query

SMALL = Bounds(connect=0.5, silence=0.3, total=0.6, bytes=200_000)
QUERY = Query((1, 2, 3), 4)


def asked(reply, query: Query = QUERY, dialect=VLLM, bounds=SMALL, environ=(), **fields):
    """The record of a server that gives this reply."""
    with served(vllm(lambda call: reply)) as server:
        wire = Wire(server.engine(**fields), bounds, dict(environ))
        try:
            return Client(wire, dialect, MODEL).ask(query)
        finally:
            wire.close()


def refusal(*arguments, **options) -> str:
    """The sentence of a server that cannot be used."""
    with pytest.raises(InputError) as error:
        asked(*arguments, **options)
    words = str(error.value)
    assert "\n" not in words
    assert words.startswith("Engine fake")
    assert words.endswith((".", "API?"))
    return words


WHOLE = [chunk(" a", [5]), chunk(" b c", [6, 7]), chunk(" d", [8], finish_reason="length")]


def test_a_stream_becomes_a_record_with_the_time_of_each_token():
    record = asked(a_stream([*WHOLE, usage(4)]))
    assert (record.text, record.tokens, record.count) == (" a b c d", (5, 6, 7, 8), 4)
    assert [tokens for _, tokens in record.arrivals] == [1, 2, 1]
    assert 0 < record.arrivals[0][0] <= record.arrivals[2][0] <= record.seconds
    assert record.after_first == record.seconds - record.arrivals[0][0]
    assert (record.finished, record.note) == ("length", "")


def test_lines_may_come_in_any_pieces():
    told = json.dumps(chunk("é", [5], finish_reason="stop"), ensure_ascii=False)
    text = f": a comment\r\nevent: x\r\ndata: {told}\r\n\r\n".encode()
    assert asked(Reply([bytes([b]) for b in text], type="text/event-stream")).text == "é"


def test_without_ids_only_the_text_and_the_count_are_known():
    told = [chunk("a b"), chunk("", finish_reason="stop"), usage(2)]
    record = asked(a_stream(told), Query("x", 4), dialect=OTHER)
    assert (record.text, record.tokens, record.count) == ("a b", None, 2)


@pytest.mark.parametrize("dialect", [OTHER, VLLM], ids=lambda each: each.kind)
def test_the_chunk_that_counts_tokens_may_have_no_choices(dialect):
    """The number was lost."""
    last = usage(2)
    del last["choices"]
    told = [chunk("a b"), chunk("", finish_reason="stop"), last]
    record = asked(a_stream(told), Query("x", 4), dialect=dialect)
    assert (record.text, record.count, record.note) == ("a b", 2, "")


def test_a_server_that_dies_in_the_middle_leaves_what_came():
    long = {"content-length": "9999"}
    short = dataclasses.replace(a_stream(WHOLE[:2], end=b"data: {"), headers=long)
    for reply in (a_stream(WHOLE[:2], end=b""), short):
        record = asked(reply)
        assert (record.text, record.tokens, record.finished) == (" a b c", (5, 6, 7), None)
        assert record.note == "Engine fake broke off the answer."


def test_no_server_is_one_sentence():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(InputError, match=r"Engine x cannot be reached \(.*\); start it, or"):
            connect(Engine("x", url), SMALL)


def test_an_endless_stream_is_cut_off_at_the_tokens_asked_for():
    record = asked(a_stream(chunk(" x", [5]) for _ in count()))
    assert record.note == "Engine fake sent more than the 4 tokens asked for and was cut off."
    assert record.tokens[:4] == (5, 5, 5, 5)
    untold = asked(a_stream(chunk(" x") for _ in count()), dialect=OTHER, query=Query("x", 4))
    assert untold.note == record.note


def test_an_endless_stream_of_nothing_is_cut_off_by_its_bytes():
    assert "sent more than 200,000 bytes" in refusal(a_stream(chunk("") for _ in count()))
    record = asked(a_stream(x for x in (WHOLE[0], *[b"x" * 1000] * 300)))
    assert (record.text, "200,000 bytes" in record.note) == (" a", True)


def test_an_endless_stream_is_cut_off_by_the_clock():
    def slowly():
        for _ in count():
            time.sleep(0.05)
            yield chunk("")

    assert "had not finished after 0.6 s" in refusal(a_stream(slowly()))


def test_a_silent_server_is_one_sentence():
    def silent():
        yield b""
        time.sleep(1)

    assert refusal(a_stream(silent())) == "Engine fake was silent for 0.3 s."


@pytest.mark.parametrize(("reply", "says"), [
    (Reply(b"<html>"), "is no JSON"),
    (Reply(b"[1]"), "JSON that is no object"),
    (a_json(chunk("\ud800", [5])), "is not UTF-8"),
    (Reply(b"data: \xff\n\n", type="text/event-stream"), "is not UTF-8"),
    (a_json({"choices": 5}), "choices: input should be a valid list"),
    (a_json({"choices": [{"text": 5}]}), "choices.0.text: input should be a valid string"),
    (a_json({"choices": [{"token_ids": [True]}]}), "choices.0.token_ids.0"),
    (a_json({"error": {"message": "no\nmemory"}}), "broke off: no memory."),
    (a_json({**chunk("a", [5]), "model": "b"}), "answered with the model 'b', not with"),
    (a_json({"detail": "x" * 9999}, 500), "failed (HTTP 500); it says: xxx"),
    (a_json({"error": {"message": "The model does not exist."}}, 404), "The model does not"),
    (Reply(b"", 404), "has no /v1/completions (HTTP 404); correct its address."),
    (Reply(b"", 401), "refuses the key (HTTP 401); name the variable"),
    (Reply(b"", 302, {"location": "http://127.0.0.1:1/"}), "redirects (HTTP 302), which is"),
    (Reply(b"x", 200, {"content-encoding": "gzip"}), "compresses its answers"),
])  # fmt: skip
def test_an_answer_that_is_none_is_one_sentence(reply, says):
    assert says in refusal(reply)
    assert len(refusal(reply)) < 500


def test_a_redirect_calls_nobody_else():
    with served(vllm(lambda call: a_stream(WHOLE))) as elsewhere:
        to = {"location": f"{elsewhere.url}/v1/completions"}
        for status in (301, 302, 303, 307, 308):
            assert "redirects" in refusal(Reply(b"", status, to))
        assert elsewhere.calls == []


def test_the_key_is_sent_and_shown_nowhere():
    environ, key = {"X": "sk-secret"}, "sk-secret"
    echo = [chunk(f" {key[:4]}", [5]), chunk(f"{key[4:]}!", [6], finish_reason=key)]
    with served(vllm(lambda call: a_stream(echo))) as server:
        wire = Wire(server.engine(key="X"), SMALL, environ)
        record = Client(wire, VLLM, MODEL).ask(QUERY)
        assert server.calls[-1].key == f"Bearer {key}"
        wire.close()
    assert key not in repr(record)
    assert record.text == " [key]!"
    for reply in (
        a_json({"error": f"wrong key {key}"}, 401),
        a_json({"error": {"message": key}}),
        a_json({"choices": [], "model": key}),
    ):
        assert key not in refusal(reply, environ=environ, key="X")


def test_a_key_in_the_environment_of_nobody_is_not_sent(monkeypatch, tmp_path):
    """httpx would take passwords from .netrc, and proxies from the environment."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with served(vllm(lambda call: a_stream(WHOLE))) as server:
        assert connect(server.engine(), SMALL).ask(QUERY).tokens == (5, 6, 7, 8)
        assert {call.key for call in server.calls} == {None}


ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def serving(answers: list[int]) -> str:
    """The address of a server that closes each connection at the request after so many answers."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for requests in answers:
            with listening.accept()[0] as connection:
                for _ in range(requests):
                    connection.recv(65536)
                    connection.sendall(ANSWER)
                connection.recv(65536)
        listening.close()

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_connection_that_was_closed_meanwhile_is_made_again():
    wire = Wire(Engine("fast", serving([1, 2])))
    assert [wire.get("/v1/models") for _ in range(3)] == [{}, {}, {}]
    wire.close()


def completion(call):
    if call.body["stream"]:
        return a_stream([chunk(" a", [1]), chunk(" b", [2], finish_reason="length")])
    return a_json(chunk(" a", finish_reason="length"))


def models(*listed, **others):
    """A server with this list of models."""

    def answers(call):
        if call.path == "/v1/models":
            return a_json({"data": list(listed)})
        if call.body is not None:
            return completion(call)
        return a_json(others[call.path.strip("/")])

    return answers


@pytest.mark.parametrize(("answers", "kind"), [
    (models({"id": "m", "owned_by": "sglang"}), "sglang"),
    (models({"id": "m", "owned_by": "llamacpp"}), "llama.cpp"),
    (models({"id": "m"}, **{"openapi.json": {"paths": {"/load_model": {}}}}), "transformers"),
    (models({"id": "m"}, **{"openapi.json": {"paths": {"/other": {}}}}), "other"),
    (models({"id": "m"}), "other"),
])  # fmt: skip
def test_the_kind_of_a_server(answers, kind):
    with served(answers) as server:
        assert connect(server.engine()).dialect.kind == kind


def test_a_key_that_comes_back_as_a_name_or_a_version_is_not_shown():
    """The canary printed it as the model's name, and wrote it into its report."""
    key = "sk-secret-1"

    def answers(call):
        if call.path == "/version":
            return a_json({"version": f"1 {key}"})
        if call.body is not None:
            return a_json({**chunk(" a", finish_reason="length"), "model": f"org/{key}"})
        return models({"id": f"org/{key}", "owned_by": "vllm"})(call)

    with served(answers) as server:
        client = connect(server.engine(key="MINE", model=f"org/{key}"), environ={"MINE": key})
        client.ask(Query("x", 1))
        assert server.calls[-1].body["model"] == f"org/{key}"  # as the server calls it
        assert (client.shown_model, client.version) == ("org/[key]", "1 [key]")


def test_another_model_than_said_is_one_sentence():
    with served(models({"id": "a"}, {"id": "b"})) as server:
        assert connect(server.engine()).model == "a"
        assert connect(server.engine(model="b")).model == "b"
        with pytest.raises(InputError, match="serves 'a', 'b', not 'c'; correct `model`"):
            connect(server.engine(model="c"))


def test_an_engine_of_ones_own_is_one_dialect(monkeypatch):
    def body(query, model):
        return {"prompt": query.prompt, "stream": query.stream, "length": query.max_tokens}

    mine = Dialect("mine", body, owner="me")
    monkeypatch.setitem(DIALECTS, mine.kind, mine)
    with served(models({"id": "stories", "owned_by": "me"})) as server:
        client = connect(server.engine())
        assert (client.dialect, client.ask(Query("x", 1)).text) == (mine, " a b")
        assert server.calls[-1].body["length"] == 1
        with pytest.raises(InputError, match="cannot be asked for `min_p`"):
            client.ask(Query("x", 1, Warping(min_p=0.1)))


def test_ids_that_are_fewer_than_the_tokens_are_not_given():
    assert asked(a_stream([chunk("a", [5], finish_reason="stop"), usage(2)])).tokens is None


def test_an_address_may_have_a_path_of_its_own():
    def answers(call):
        return vllm(completion)(dataclasses.replace(call, path=call.path.removeprefix("/deep")))

    with served(answers) as server:
        connect(Engine("x", f"{server.url}/deep")).ask(Query((1,), 4))
        assert [call.path for call in server.calls] == ["/deep/v1/models", "/deep/v1/completions"]


def test_the_entry_may_say_the_kind():
    with served(models({"id": "m"})) as server:
        assert connect(server.engine(kind="vllm")).dialect.kind == "vllm"
        with pytest.raises(InputError, match=r"no known kind 'vlm': did you mean 'vllm'"):
            connect(server.engine(kind="vlm"))
