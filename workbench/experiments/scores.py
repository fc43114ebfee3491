"""How good an output is: scorers by name. Each takes the output and an item's answers, and gives figures of which "score" is the one
that tables show."""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.experiments.sets import ScoredSet
from workbench.experiments.sql import execution_accuracy

Figures = dict[str, float | str]


def rouge(output: str, answers: Mapping[str, Any]) -> Figures:
    """F-measures of ROUGE-1, -2 and -L (Lin 2004) with the tokens of the package `rouge-score`, no stemming."""
    one, two = rouge_tokens(answers["reference"]), rouge_tokens(output)
    found = {f"rouge{n}": _overlap(_grams(one, n), _grams(two, n)) for n in (1, 2)}
    found["rougeL"] = _f(longest_common(one, two), len(one), len(two))
    return {"score": found["rougeL"], **found}


def rouge_tokens(text: str) -> list[str]:
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
    """Exact match and F1 as the official script of SQuAD v2 has them: the best over the gold answers; a question without an answer is
    right if the output is empty once normalised."""
    gold = [a for a in answers["answers"] if normalised(a)] or [""]
    exact = max(float(normalised(output) == normalised(a)) for a in gold)
    return {"score": exact, "exact match": exact, "F1": max(_token_f1(a, output) for a in gold)}


def normalised(text: str) -> str:
    """Lower case, without punctuation, the articles a, an and the, and extra white space."""
    text = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def _token_f1(gold: str, output: str) -> float:
    one, two = normalised(gold).split(), normalised(output).split()
    if not one or not two:
        return float(one == two)
    return _overlap(Counter(one), Counter(two))


def sql(output: str, answers: Mapping[str, Any]) -> Figures:
    right, why = execution_accuracy(answers["database"], answers["gold"], output)
    return ({} if right is None else {"score": float(right)}) | ({"why": why} if why else {})


SCORERS: dict[str, Callable[[str, Mapping[str, Any]], Figures]] = {"rouge": rouge, "squad": squad, "sql": sql}
SCORE_NAMES = {"rouge": "ROUGE-L", "squad": "exact match", "sql": "execution accuracy"}


def score(scored: ScoredSet, index: int, output: str) -> Figures | None:
    """The figures of one output; None if there is nothing to compare it with."""
    item = scored.items[index]
    if not scored.scorer or not item.answers:
        return None
    return SCORERS[scored.scorer](scored.answer(output).strip(), item.answers)
