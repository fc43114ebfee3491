"""Each engine's words, and its answers."""

import json

import pytest

from decoders import InputError, Warping
from tests.workbench.engines.served import MODEL, a_stream, chunk, served, vllm
from workbench.engines.client import Client, Wire
from workbench.engines.dialects import DIALECTS, SGLANG, Query


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_every_dialect_asks_for_what_was_asked(dialect):
    body = json.dumps(dialect.body(Query("x", 17, Warping(0.25), seed=99, stream=False), "m"))
    assert all(word in body for word in ('"x"', "17", "0.25", "99", "false"))


def test_top_k_of_a_server_s_own_is_always_undone():
    """vLLM, llama.cpp and transformers have one, from a generation config or as a default."""
    query = Query("x", 1)
    assert DIALECTS["vllm"].body(query, "m")["top_k"] == 0
    assert DIALECTS["llama.cpp"].body(query, "m")["samplers"] == ["temperature"]
    config = json.loads(DIALECTS["transformers"].body(query, "m")["generation_config"])
    assert config == {"do_sample": True, "top_k": 0, "max_new_tokens": 1}
    greedy = DIALECTS["transformers"].body(Query("x", 1, Warping(0.0)), "m")
    assert not json.loads(greedy["generation_config"])["do_sample"]


def asked(kind: str, temperature: float = 0.7, **cuts) -> Query:
    return Query((1,) if DIALECTS[kind].takes_ids else "a", 4, Warping(temperature, **cuts))


def body(kind: str, **sampling) -> dict:
    return DIALECTS[kind].body(asked(kind, **sampling), MODEL)


def unsaid(kind: str, **sampling) -> str | None:
    return DIALECTS[kind].unsaid(asked(kind, **sampling))


CUT = {"top_k": 20, "top_p": 0.9}


def test_sglang():
    found = body("sglang", top_p=0.9, min_p=0.1)["sampling_params"]
    assert (found["top_k"], found["top_p"], found["min_p"]) == (-1, 0.9, 0.1)
    assert body("sglang", top_k=20)["sampling_params"]["top_k"] == 20


def test_transformers():
    found = body("transformers", min_p=0.1, **CUT)
    config = json.loads(found["generation_config"])
    assert (found["top_p"], config["top_k"], config["min_p"]) == (0.9, 20, 0.1)
    assert config["do_sample"] is True


def test_llama_cpp_gets_its_samplers_in_our_order():
    found = body("llama.cpp", top_n_sigma=2.0, min_p=0.1, **CUT)
    assert found["samplers"] == ["temperature", "top_n_sigma", "top_k", "top_p", "min_p"]
    assert (found["top_k"], found["top_n_sigma"]) == (20, 2.0)
    last = body("llama.cpp", temperature_last=True, **CUT)
    assert last["samplers"] == ["top_k", "top_p", "temperature"]
    assert body("llama.cpp")["samplers"] == ["temperature"]


@pytest.mark.parametrize(("kind", "cuts", "says"), [
    ("other", {"top_k": 5}, "cannot be asked for `top_k`"),
    ("vllm", {"top_n_sigma": 1.0}, "cannot be asked for `top_n_sigma`"),
    ("vllm", {"top_p": 0.9, "temperature_last": True}, "`temperature_last`"),
    ("vllm", {"top_p": 0.9, "min_p": 0.1}, "`top_p` and `min_p` in another order"),
    ("sglang", CUT, "`top_k` and `top_p` in another order"),
])  # fmt: skip
def test_what_an_engine_cannot_be_asked_for_is_said(kind, cuts, says):
    assert says in unsaid(kind, **cuts)


@pytest.mark.parametrize(("kind", "sampling"), [
    ("vllm", {"top_k": 20, "min_p": 0.1}),
    ("vllm", {"temperature": 1.0, "top_p": 0.9, "temperature_last": True}),
    ("sglang", {"top_p": 0.9, "min_p": 0.1}),
    ("llama.cpp", {"top_n_sigma": 1.0, "top_p": 0.9, "min_p": 0.1, "temperature_last": True}),
    ("transformers", {"top_p": 0.9, "min_p": 0.1, **CUT}),
])  # fmt: skip
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


def chunk_sglang(text, ids, count, reason=None):
    finish = {"type": reason, "length": count} if reason else None
    meta = {"completion_tokens": count, "finish_reason": finish}
    return {"text": text, "output_ids": ids, "meta_info": meta}


@pytest.mark.parametrize("pieces", [
    [("a", [1]), ("ab c", [1, 2, 3]), ("ab cd", [1, 2, 3, 4])],
    [("a", [1]), ("b c", [2, 3]), ("d", [4])],
], ids=["from the beginning", "piece by piece"])  # fmt: skip
def test_chunks_come_whole_again_or_piece_by_piece(pieces):
    ends = ((1, None), (3, None), (4, "length"))
    told = [chunk_sglang(*piece, *end) for piece, end in zip(pieces, ends, strict=True)]
    found = list(SGLANG.chunks(told))
    assert [each.text for each in found] == ["a", "b c", "d"]
    assert [each.ids for each in found] == [(1,), (2, 3), (4,)]
    assert [each.finished for each in found] == [None, None, "length"]
    assert found[-1].count == 4


def test_a_prompt_is_ids_or_text_and_nothing_is_cut_off():
    body = SGLANG.body(Query((1, 2), 3, Warping(0.5), seed=9), "m")
    assert body["input_ids"] == [1, 2]
    assert SGLANG.body(Query("x", 3), None)["text"] == "x"
    sampling = body["sampling_params"]
    assert (sampling["top_p"], sampling["top_k"], sampling["min_p"]) == (1.0, -1, 0.0)
    assert (sampling["max_new_tokens"], sampling["temperature"]) == (3, 0.5)


@pytest.mark.parametrize("event", [
    {"text": "a", "meta_info": {}},
    {"text": "a", "output_ids": "1", "meta_info": {"completion_tokens": 1}},
    {"text": 5, "meta_info": {"completion_tokens": 1}},
])  # fmt: skip
def test_other_shapes_are_refused(event):
    with pytest.raises(InputError, match="another shape"):
        list(SGLANG.chunks([event]))
