"""Scorers against answers worked out by hand, and against packages that are installed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiments.scores import normalised, rouge, rouge_tokens, score, squad
from workbench.experiments.sets import Item, ScoredSet


@pytest.mark.parametrize(
    ("output", "gold", "exact", "f1"),
    [
        ("Paris", ["Paris"], 1, 1),
        ("the Paris", ["Paris"], 1, 1),
        ("An apple", ["the apple"], 1, 1),
        ("PARIS", ["paris"], 1, 1),
        ("Paris.", ["Paris"], 1, 1),
        ("  Paris \n", ["Paris"], 1, 1),
        ("U.S.A.", ["USA"], 1, 1),
        ("London", ["Paris"], 0, 0),
        ("in Paris", ["Paris"], 0, 2 / 3),
        ("Paris in France", ["Paris", "Paris in France"], 1, 1),
        ("the city of Paris", ["Paris France"], 0, 2 / 5),
        ("Paris Paris", ["Paris"], 0, 2 / 3),
        ("", [], 1, 1),
        ("the", [], 1, 1),
        ("Paris", [], 0, 0),
        ("", ["Paris"], 0, 0),
        ("theatre", ["atre"], 0, 0),
        ("twenty-one", ["twenty one"], 0, 0),
        ("Beyoncé", ["Beyonce"], 0, 0),
        ("1,871", ["1871"], 1, 1),
        ("a b c d", ["b c d e"], 0, 6 / 7),
    ],
)
def test_squad(output, gold, exact, f1):
    """The articles a, an and the do not count: "a b c d" has three words that do."""
    found = squad(output, {"answers": gold})
    assert found["exact match"] == found["score"] == exact
    assert found["F1"] == pytest.approx(f1)


def test_only_words_are_articles():
    assert normalised("A theatre, an anthem; the a-team!") == "theatre anthem ateam"


@pytest.mark.parametrize(
    ("output", "reference", "one", "two", "longest"),
    [
        ("the cat sat", "the cat sat", 1, 1, 1),
        ("The CAT, sat!", "the cat sat", 1, 1, 1),
        ("the cat", "the cat sat", 4 / 5, 2 / 3, 4 / 5),
        ("sat cat the", "the cat sat", 1, 0, 1 / 3),
        ("dog", "the cat sat", 0, 0, 0),
        ("", "the cat sat", 0, 0, 0),
        ("the cat sat", "", 0, 0, 0),
        ("", "", 0, 0, 0),
        ("the the the", "the cat sat", 1 / 3, 0, 1 / 3),
        ("a b c d", "a x c d", 3 / 4, 1 / 3, 3 / 4),
        ("a c b d", "a b c d", 1, 0, 3 / 4),
        ("cats", "cat", 0, 0, 0),
        ("one-two", "one two", 1, 1, 1),
        ("3.5 km", "3 5 km", 1, 1, 1),
        ("naïve", "na ve", 1, 1, 1),
        ("a b a b", "b a b a", 1, 2 / 3, 3 / 4),
    ],
)
def test_rouge(output, reference, one, two, longest):
    found = rouge(output, {"reference": reference})
    assert [found["rouge1"], found["rouge2"], found["rougeL"]] == pytest.approx([one, two, longest])
    assert found["score"] == found["rougeL"]


WORDS = st.lists(
    st.sampled_from(["the", "Cat", "sat", "on", "ma-t", "é", "5.5", "\n"]), max_size=12
).map(" ".join)


@given(WORDS, WORDS)
def test_rouge_is_that_of_the_package(output, reference):
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    own = scorer.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False).score(
        reference, output
    )
    found = rouge(output, {"reference": reference})
    assert {n: found[n] for n in own} == pytest.approx({n: v.fmeasure for n, v in own.items()})


def test_tokens_are_those_of_the_package():
    assert rouge_tokens("Don't STOP_now, 3.5—ok") == ["don", "t", "stop", "now", "3", "5", "ok"]


def test_only_the_answer_is_scored_and_only_if_there_is_something_to_compare_it_with():
    items = (
        Item({"prompt": "?"}, "line 1", {"answers": ["Paris"]}),
        Item({"prompt": "?"}, "line 2"),
    )
    scored = ScoredSet("s", items, "squad", stop=("\n",))
    assert score(scored, 0, " Paris\nQuestion: and London?")["score"] == 1
    assert score(scored, 1, "Paris") is None
    assert score(ScoredSet("s", items), 0, "Paris") is None
