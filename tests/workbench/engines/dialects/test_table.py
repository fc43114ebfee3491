"""All dialects: what each asks for, and what the table promises of it."""

import json

import pytest

from decoders import Warping
from workbench.engines.dialects import DIALECTS
from workbench.engines.record import Query


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


def test_signs_and_owners_tell_dialects_apart():
    for field in ("owner", "sign"):
        values = [found for each in DIALECTS.values() if (found := getattr(each, field))]
        assert len(values) == len(set(values))
