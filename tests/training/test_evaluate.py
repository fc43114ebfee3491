import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

import decoders
from training import blind, evaluate
from training.corpus import Mixture, prepare
from training.ngram import KneserNey
from training.recipe import sizes
from training.train import train


def test_the_5_gram_model_is_normalised():
    train = np.random.default_rng(0).integers(0, 6, 300)
    model = KneserNey(train, vocab_size=7, order=3)
    for context in ([0, 1], [5, 5], [6, 6], [2, 6], [6, 2]):  # 6 was never seen
        sums = sum(np.exp(model.log_probs(np.array([*context, w])))[0] for w in range(7))
        assert sums == pytest.approx(1)


def test_the_5_gram_model_by_hand():
    model = KneserNey(np.array([0, 1, 0, 1, 0, 2]), vocab_size=4, order=2)  # bigrams 01 10 01 10 02
    # 0, 1 and 2 each follow one token: all counts 1, discount 1, the rest uniform
    unigram = (1 - 1 + 1 * 3 / 4) / 3
    discount = 1 / (1 + 2 * 2)  # one bigram seen once, two seen twice
    expected = (2 - discount + discount * 2 * unigram) / 3
    assert np.exp(model.log_probs(np.array([0, 1])))[0] == pytest.approx(expected)


def test_a_repeated_run_is_a_loop():
    assert evaluate.loops([1, 2, 3] * 5)
    assert not evaluate.loops(list(range(60)))


@pytest.fixture(scope="module")
def tiny(data, tmp_path_factory):
    """The work folder and the pair of a tiny training."""
    folder = tmp_path_factory.mktemp("tiny")
    train(sizes()["tiny"], data, folder / "work", folder, "cpu")
    return folder


def test_evaluation_measures_everything_and_fills_the_card(tiny, tmp_path, monkeypatch):
    card, figures = tmp_path / "card.md", tmp_path / "figures.json"
    card.write_text("# Card\n<!-- figures -->\nformer figures\n<!-- /figures -->\nend\n")
    prompts = {
        "openings": ["The small fox", "A bear went"],
        "instructions": ["User: Tell it."],
        "blind": ["The old tree"],
    }
    (tmp_path / "prompts.json").write_text(json.dumps(prompts))
    monkeypatch.setattr(evaluate, "PROMPTS", tmp_path / "prompts.json")
    monkeypatch.setattr(evaluate, "NEW_TOKENS", 10)
    monkeypatch.setattr(evaluate, "STORY_TOKENS", 10)
    evaluate.main(
        [
            f"--work={tiny / 'work'}",
            f"--pair={tiny}",
            f"--card={card}",
            f"--figures={figures}",
            "--limit=500",
        ]
    )
    text = card.read_text()
    assert text.startswith("# Card")
    assert text.endswith("end\n")
    assert "former figures" not in text
    for heading in ("Held-out perplexity", "near-duplicates", "Acceptance", "Completions"):
        assert heading in text
    measured = json.loads(figures.read_text())
    rows = measured["perplexity"]
    sets = [rows[name] for name in evaluate.STORIES if name in rows]
    pooled = sum(row["target nats"] * row["tokens"] for row in sets) / sum(
        row["tokens"] for row in sets
    )
    assert rows["stories"]["target nats"] == pytest.approx(pooled)
    assert measured["acceptance"].keys() == evaluate.SETTINGS.keys()
    assert all(
        0 <= row["alpha"] <= 1 <= row["block_efficiency"] <= 5
        for row in measured["acceptance"].values()
    )
    assert [opening for opening, _ in measured["stories"]] == prompts["blind"]


def test_a_pair_of_equals_accepts_everything_it_drafts(tiny):
    model = AutoModelForCausalLM.from_pretrained(tiny / "target", dtype=torch.float64)
    pair = decoders.ModelPair(model, model, AutoTokenizer.from_pretrained(tiny / "target"))
    results = evaluate.write_texts(
        pair, ["The small fox", "A bear"], "speculative", 20, 0, temperature=0.8, top_p=0.95
    )
    figures = evaluate.acceptance(results)
    assert figures["alpha"] == figures["accepted_of_drafted"] == 1
    assert figures["texts"] == 2


def test_evaluation_says_what_it_needs(tmp_path):
    with pytest.raises(SystemExit, match="--work"):
        evaluate.main([])
    with pytest.raises(SystemExit, match="--sheet"):
        evaluate.main(["--compare", "a", "b"])


@given(sides=st.lists(st.booleans(), max_size=20), seed=st.integers(0, 99))
def test_the_key_finds_the_new_stories_again(tmp_path_factory, sides, seed):
    folder = tmp_path_factory.mktemp("sheet")
    before, after = (
        [[f"opening {i}", f"{name} {i}"] for i in range(len(sides))] for name in ("old", "new")
    )
    blind.write_sheet(before, after, folder, seed)
    key = json.loads((folder / "key.json").read_text())
    sheet = (folder / "sheet.md").read_text()
    for i, side in enumerate(key):
        assert f"**{side}** new {i}\n" in sheet
    assert blind.count_verdicts(key, key)["new"] == len(sides)
    assert blind.count_verdicts(key, ["="] * len(key))["neither"] == len(sides)


def test_a_comparison_is_of_equal_openings_and_whole_verdicts(tmp_path):
    with pytest.raises(ValueError, match="different openings"):
        blind.write_sheet([["a", "x"]], [["b", "x"]], tmp_path / "sheet", 0)
    assert not (tmp_path / "sheet").exists()
    for verdicts in (["A"], ["A", "C"]):
        with pytest.raises(ValueError, match="2 verdicts"):
            blind.count_verdicts(["A", "B"], verdicts)


def test_held_out_scores_do_not_depend_on_where_windows_end(data, tmp_path):
    recipe = sizes()["tiny"]
    prepare(data, tmp_path, recipe.corpus)
    model = recipe.target.build(300, 32).eval()
    ids = Mixture.load(tmp_path, recipe.corpus.weights).batch(np.random.default_rng(0), 1, 60)[0]
    whole = evaluate.log_probs(model, ids)
    assert whole.shape == (60,)
    np.testing.assert_allclose(evaluate.log_probs(model, ids[31:]), whole[31:], rtol=1e-4)
