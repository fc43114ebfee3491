import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import blind, evaluate
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
    flags = [f"--work={tiny / 'work'}", f"--pair={tiny}", f"--card={card}"]
    evaluate.main([*flags, f"--figures={figures}", "--limit=500"])
    text = card.read_text()
    assert text.startswith("# Card")
    assert text.endswith("end\n")
    assert "former figures" not in text
    for heading in ("Held-out perplexity", "near-duplicates", "Acceptance", "Completions"):
        assert heading in text
    measured = json.loads(figures.read_text())
    rows = measured["perplexity"]
    sets = [rows[name] for name in evaluate.STORIES if name in rows]
    tokens = sum(row["tokens"] for row in sets)
    pooled = sum(row["target nats"] * row["tokens"] for row in sets) / tokens
    assert rows["stories"]["target nats"] == pytest.approx(pooled)
    assert measured["acceptance"].keys() == evaluate.SETTINGS.keys()
    assert all(
        0 <= row["alpha"] <= 1 <= row["block_efficiency"] <= 5
        for row in measured["acceptance"].values()
    )
    assert [opening for opening, _ in measured["stories"]] == prompts["blind"]


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
