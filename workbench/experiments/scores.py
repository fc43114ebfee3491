"""Scorers of outputs, by name.

Each compares an output with an item's answers and returns figures; tables show the one named
"score".
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.experiments.sets import ScoredSet
from workbench.experiments.sql import execution_accuracy

Figures = dict[str, float | str]


def rouge(output: str, answers: Mapping[str, Any]) -> Figures:
    """F-measures of ROUGE-1, -2 and -L, with the tokens of the package `rouge-score`, unstemmed.

    Args:
        output: the text
        answers: has the reference text as "reference"

    Source:
        Lin 2004, ROUGE: a package for automatic evaluation of summaries.
    """
    one, two = rouge_tokens(answers["reference"]), rouge_tokens(output)
    found = {f"rouge{n}": _overlap(_grams(one, n), _grams(two, n)) for n in (1, 2)}
    found["rougeL"] = _f(longest_common(one, two), len(one), len(two))
    return {"score": found["rougeL"], **found}


def rouge_tokens(text: str) -> list[str]:
    """The tokens that ROUGE counts: lower-case words of letters and digits."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).split()


def _grams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _overlap(one: Counter, two: Counter) -> float:
    return _f((one & two).total(), one.total(), two.total())


def _f(shared: int, one: int, two: int) -> float:
    """The harmonic mean of shared / one and shared / two."""
    return 2 * shared / (one + two) if shared else 0.0


def longest_common(one: Sequence[str], two: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(two) + 1)
    for token in one:
        before = 0
        for j, other in enumerate(two, 1):
            before, row[j] = row[j], before + 1 if token == other else max(row[j], row[j - 1])
    return row[-1]


def squad(output: str, answers: Mapping[str, Any]) -> Figures:
    """Exact match and F1 as SQuAD v2's official script computes them: the best over gold answers.

    If a question has no answer, the right output is empty once normalised.

    Args:
        output: the text
        answers: has the gold answers, a list of texts, as "answers"
    """
    gold = [a for a in answers["answers"] if normalised(a)] or [""]
    exact = max(float(normalised(output) == normalised(a)) for a in gold)
    return {"score": exact, "exact match": exact, "F1": max(_token_f1(a, output) for a in gold)}


def normalised(text: str) -> str:
    """Lower case, without punctuation, the articles a, an and the, and extra white space."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _token_f1(gold: str, output: str) -> float:
    one, two = normalised(gold).split(), normalised(output).split()
    return _overlap(Counter(one), Counter(two)) if one and two else float(one == two)


def spider(output: str, answers: Mapping[str, Any]) -> Figures:
    """Execution accuracy, and as "why" the error of a query that failed.

    Args:
        output: the predicted query
        answers: has the path of the database as "database" and the gold query as "gold"
    """
    right, why = execution_accuracy(answers["database"], answers["gold"], output)
    return ({} if right is None else {"score": float(right)}) | ({"why": why} if why else {})


SCORERS: dict[str, Callable[[str, Mapping[str, Any]], Figures]] = {
    "rouge": rouge,
    "squad": squad,
    "spider": spider,
}
SCORE_NAMES = {"rouge": "ROUGE-L", "squad": "exact match", "spider": "execution accuracy"}


def score(scored: ScoredSet, index: int, output: str) -> Figures | None:
    """The figures of one output.

    Args:
        scored: the set of prompts
        index: the prompt's number in it
        output: the whole output

    Returns:
        the figures, None if the set has no scorer or the prompt no answers
    """
    answers = scored.items[index].answers
    known = scored.scorer and answers
    return SCORERS[scored.scorer](scored.answer(output).strip(), answers) if known else None
