"""The same sampling in each engine's words, and what cannot be said to it."""

import json

import pytest

from decoders import InputError, Warping
from tests.workbench.engines.served import MODEL, a_stream, chunk, served, vllm
from workbench.engines.client import Client, Wire
from workbench.engines.dialects import DIALECTS
from workbench.engines.record import Query


def asked(kind: str, temperature: float = 0.7, **cuts) -> Query:
    return Query((1,) if DIALECTS[kind].takes_ids else "a", 4, Warping(temperature, **cuts))


def body(kind: str, **sampling) -> dict:
    return DIALECTS[kind].body(asked(kind, **sampling), MODEL)


def unsaid(kind: str, **sampling) -> str | None:
    return DIALECTS[kind].unsaid(asked(kind, **sampling))


CUT = {"top_k": 20, "top_p": 0.9}


def test_vllm():
    found = body("vllm", **CUT)
    assert (found["temperature"], found["top_k"], found["top_p"]) == (0.7, 20, 0.9)
    assert body("vllm", min_p=0.1)["min_p"] == 0.1


def test_sglang():
    found = body("sglang", top_p=0.9, min_p=0.1)["sampling_params"]
    assert (found["top_k"], found["top_p"], found["min_p"]) == (-1, 0.9, 0.1)
    assert body("sglang", top_k=20)["sampling_params"]["top_k"] == 20


def test_transformers():
    found = body("transformers", min_p=0.1, **CUT)
    config = json.loads(found["generation_config"])
    assert (found["top_p"], config["top_k"], config["min_p"]) == (0.9, 20, 0.1)
    assert config["do_sample"] is True


def test_other():
    assert body("other", top_p=0.9)["top_p"] == 0.9


def test_llama_cpp_gets_its_samplers_in_our_order():
    found = body("llama.cpp", top_n_sigma=2.0, min_p=0.1, **CUT)
    assert found["samplers"] == ["temperature", "top_n_sigma", "top_k", "top_p", "min_p"]
    assert (found["top_k"], found["top_n_sigma"]) == (20, 2.0)
    last = body("llama.cpp", temperature_last=True, **CUT)
    assert last["samplers"] == ["top_k", "top_p", "temperature"]
    assert body("llama.cpp")["samplers"] == ["temperature"]


@pytest.mark.parametrize(
    ("kind", "cuts", "says"),
    [
        ("other", {"top_k": 5}, "cannot be asked for `top_k`"),
        ("other", {"min_p": 0.1}, "cannot be asked for `min_p`"),
        ("vllm", {"top_n_sigma": 1.0}, "cannot be asked for `top_n_sigma`"),
        ("vllm", {"top_p": 0.9, "temperature_last": True}, "`temperature_last`"),
        ("vllm", {"top_p": 0.9, "min_p": 0.1}, "`top_p` and `min_p` in another order"),
        ("sglang", CUT, "`top_k` and `top_p` in another order"),
        ("transformers", {"top_n_sigma": 1.0}, "cannot be asked for `top_n_sigma`"),
    ],
)
def test_what_an_engine_cannot_be_asked_for_is_said(kind, cuts, says):
    assert says in unsaid(kind, **cuts)


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [
        ("vllm", {"top_k": 20, "min_p": 0.1}),
        ("vllm", {"temperature": 1.0, "top_p": 0.9, "temperature_last": True}),
        ("vllm", {"temperature_last": True}),
        ("sglang", {"top_p": 0.9, "min_p": 0.1}),
        ("llama.cpp", {"top_n_sigma": 1.0, "top_p": 0.9, "min_p": 0.1, "temperature_last": True}),
        ("transformers", {"top_p": 0.9, "min_p": 0.1, **CUT}),
    ],
)
def test_what_comes_to_the_same_is_asked_for(kind, sampling):
    assert unsaid(kind, **sampling) is None


def test_nothing_is_cut_from_the_likeliest_token():
    """At temperature 0 a cut-off that the engine lacks is no reason to leave it out."""
    with served(vllm(lambda call: a_stream([chunk(" a", [5], finish_reason="length")]))) as server:
        client = Client(Wire(server.engine()), DIALECTS["vllm"], MODEL)
        client.ask(Query((1,), 4, Warping(0.0, top_n_sigma=1.0, top_p=0.9, min_p=0.1)))
        with pytest.raises(InputError, match=r"^Engine fake cannot be asked for `top_n_sigma`"):
            client.ask(Query((1,), 4, Warping(top_n_sigma=1.0)))
        client.wire.close()
    (call,) = server.calls
    assert (call.body["top_p"], call.body["min_p"]) == (1.0, 0.0)


def test_pieces_are_heard_as_they_come_and_may_be_the_last():
    def stop(piece, seconds):
        heard.append((piece.text, seconds))
        if len(heard) == 2:
            raise InputError("Enough.")

    heard: list[tuple[str, float]] = []
    pieces = [chunk(f" {i}", [i]) for i in range(4)]
    with served(vllm(lambda call: a_stream(pieces))) as server:
        client = Client(Wire(server.engine()), DIALECTS["vllm"], MODEL)
        record = client.ask(Query((1,), 4), heard=stop)
        client.wire.close()
    assert [text for text, _ in heard] == [" 0", " 1"]
    assert (record.text, record.note) == (" 0 1", "Engine fake: enough.")
    assert heard[0][1] == record.first
