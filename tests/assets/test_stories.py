"""The embedded pair as it ships: its prompts, its files, both models and the card."""

import json

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from training import SHIPPED
from training.recipe import sizes


@pytest.mark.parametrize(("name", "most"), [("target", 31_000_000), ("draft", 3_000_000)])
def test_the_shipped_pair_loads(name, most):
    model = AutoModelForCausalLM.from_pretrained(SHIPPED / name)
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED / name)
    assert model.num_parameters() <= most
    assert model.config.vocab_size == len(tokenizer) <= 4096
    assert model.config.max_position_embeddings >= 1024
    text = "狐 🦊\x00\n\n  “ok”"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_card_says_what_it_must():
    text = (SHIPPED / "README.md").read_text()
    assert "Built with Llama" in text
    assert "Llama-Stories" in text
    for name in sizes()["full"].corpus.weights:
        assert name in text
    for heading in (
        "Held-out perplexity",
        "near-duplicates",
        "Acceptance",
        "Completions",
        "Limits",
    ):
        assert heading in text
    assert "Not measured yet" not in text


def test_the_openings_of_the_blind_comparison_are_unseen():
    prompts = json.loads((SHIPPED / "prompts.json").read_text())
    assert len(set(prompts["blind"]) - set(prompts["openings"])) == 60
