"""`python -m workbench diverge`: two greedy texts, as text or as token ids."""

import json

import decoders


def test_a_fault_equal_texts_and_bad_input(call, pair):
    ids = list(pair.tokenizer("abab").input_ids)
    good = decoders.generate(pair, ids, "greedy", max_new_tokens=6, ignore_eos=True).tokens
    bad = [*good[:3], next(t for t in range(60) if t != good[3]), *good[4:]]
    status, out, _ = call("diverge", *map(json.dumps, (ids, good, bad)))
    assert status == 1
    assert out.startswith("Fault at new token 4 ")
    assert "in float32" in out.splitlines()[1]
    assert call("diverge", "abab", "ab", "ab")[:2] == (
        0,
        "The texts are the same, with 2 tokens.\n",
    )
    status, _, error = call("diverge", "abab", "[999]", "b")
    assert (status, error.count("\n")) == (2, 1)
    assert "Token id 999 is out of range" in error
