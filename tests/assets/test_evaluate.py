import json
from pathlib import Path

import evaluate
import numpy as np
import pytest
from corpus import Mixture, prepare
from ngram import KneserNey
from recipe import sizes
from train import train
from transformers import AutoModelForCausalLM, AutoTokenizer

STORIES = Path(evaluate.__file__).parent


def test_the_5_gram_model_is_normalised():
    train = np.random.default_rng(0).integers(0, 6, 300)
    model = KneserNey(train, vocab_size=7, order=3)
    for context in ([0, 1], [5, 5], [6, 6], [2, 6], [6, 2]):  # 6 was never seen
        sums = sum(np.exp(model.log_probs(np.array([*context, w])))[0] for w in range(7))
        assert sums == pytest.approx(1)


def test_the_5_gram_model_by_hand():
    model = KneserNey(np.array([0, 1, 0, 1, 0, 2]), vocab_size=4, order=2)  # bigrams 01 10 01 10 02
    unigram = (1 - 1 + 1 * 3 / 4) / 3  # 0, 1 and 2 each follow one token: all counts 1, discount 1, the rest uniform
    discount = 1 / (1 + 2 * 2)  # one bigram seen once, two seen twice
    expected = (2 - discount + discount * 2 * unigram) / 3
    assert np.exp(model.log_probs(np.array([0, 1])))[0] == pytest.approx(expected)


def test_a_repeated_run_is_a_loop():
    assert evaluate.loops([1, 2, 3] * 5)
    assert not evaluate.loops(list(range(60)))


def test_evaluation_fills_the_card(data, tmp_path, monkeypatch):
    train(sizes()["tiny"], data, tmp_path / "work", tmp_path, "cpu")
    path = tmp_path / "card.md"
    path.write_text("# Card\n<!-- figures -->\nformer figures\n<!-- /figures -->\nend\n")
    arguments = ["evaluate.py", f"--work={tmp_path / 'work'}", f"--pair={tmp_path}", f"--card={path}", "--limit=500"]
    monkeypatch.setattr("sys.argv", arguments)
    monkeypatch.setattr(evaluate, "NEW_TOKENS", 10)
    evaluate.main()
    text = path.read_text()
    assert text.startswith("# Card")
    assert text.endswith("end\n")
    assert "former figures" not in text
    for heading in ("Held-out perplexity", "near-duplicates", "Acceptance", "Completions"):
        assert heading in text


def test_held_out_scores_do_not_depend_on_where_windows_end(data, tmp_path):
    recipe = sizes()["tiny"]
    prepare(data, tmp_path, recipe.corpus)
    model = recipe.target.build(300, 32).eval()
    ids = Mixture.load(tmp_path, recipe.corpus.weights).batch(np.random.default_rng(0), 1, 60)[0]
    whole = evaluate.log_probs(model, ids)
    assert whole.shape == (60,)
    np.testing.assert_allclose(evaluate.log_probs(model, ids[31:]), whole[31:], rtol=1e-4)


def test_prompts_are_enough_and_plain():
    prompts = json.loads((STORIES / "prompts.json").read_text())
    assert len(prompts["openings"]) >= 60
    assert len(prompts["instructions"]) == 10
    assert all(prompt.startswith("User: ") for prompt in prompts["instructions"])


def test_every_shipped_file_is_below_10_mb():
    assert all(path.stat().st_size < 10_000_000 for path in STORIES.rglob("*") if path.is_file())


@pytest.mark.parametrize(("name", "most"), [("target", 31_000_000), ("draft", 1_500_000)])
def test_the_shipped_pair_loads(name, most):
    model = AutoModelForCausalLM.from_pretrained(STORIES / name)
    tokenizer = AutoTokenizer.from_pretrained(STORIES / name)
    assert model.num_parameters() <= most
    assert model.config.vocab_size == len(tokenizer) <= 4096
    assert model.config.max_position_embeddings >= 1024
    text = "狐 🦊\x00\n\n  “ok”"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_card_says_what_it_must():
    text = (STORIES / "README.md").read_text()
    assert "Built with Llama" in text
    assert "Llama-Stories" in text
    for name in sizes()["full"].corpus.weights:
        assert name in text
    for heading in ("Held-out perplexity", "near-duplicates", "Acceptance", "Completions", "Limits"):
        assert heading in text
    assert "Not measured yet" not in text
