"""Scorers of outputs, by name.

Each compares an output with an item's answers and returns figures; tables show the one named
"score". Predicted SQL is judged by execution: both queries run in a guarded child process. They are
prepared and compared as Spider's official evaluation does by default: `eval_exec_match` and
`result_eq` of Zhong et al. 2020 (Semantic evaluation for text-to-SQL with distilled test suites)
without --keep_distinct and --plug_value.
"""

import itertools
import json
import re
import string
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from workbench.experiments.sets import ScoredSet

CHILD = Path(__file__).with_name("sql_child.py")
DEADLINE = 10.0  # seconds of one query
MOST_PERMUTATIONS = 5000
# Matches the keyword DISTINCT as "word". The other branches skip texts, quoted names and comments.
DISTINCT = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]"""
    r"""|--[^\n]*|/\*.*?\*/|(?P<word>\bdistinct\b)""",
    re.IGNORECASE | re.DOTALL,
)
THIS_YEAR = re.compile(r"year\s*\(\s*curdate\s*\(\s*\)\s*\)\s*", re.IGNORECASE)
Row = tuple[Any, ...]
Figures = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows of a query; `error` is one sentence if it could not be run."""

    rows: list[Row]
    error: str | None = None


def execute(database: Path, query: str, deadline: float = DEADLINE) -> QueryRows:
    """Run a query in a child process with little memory and time.

    It can only read: no writing, attaching or loading.

    Args:
        deadline: seconds
    """
    if not database.is_file():
        return QueryRows([], f"there is no database {database.name}")
    order = json.dumps({"database": str(database.resolve()), "query": query, "deadline": deadline})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(CHILD)],
            input=order.encode(), capture_output=True, timeout=deadline + 5, cwd="/", env={},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return QueryRows([], f"stopped after {deadline:g} s")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return QueryRows([], "its process broke down: it took too much memory or time")
    rows = [
        tuple(bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in row)
        for row in answer["rows"]
    ]
    return QueryRows(rows, answer["error"])


def as_official(query: str) -> str:
    """A query as the official evaluation runs it: among other changes, without DISTINCT."""
    for operator in (">=", "<=", "!="):
        query = query.replace(" ".join(operator), operator)
    query = DISTINCT.sub(lambda match: "" if match["word"] else match[0], query)
    return THIS_YEAR.sub("2020", query)


def execution_accuracy(database: Path, gold: str, predicted: str) -> tuple[bool | None, str | None]:
    """Whether a predicted query gives the same rows as the gold query.

    Returns:
        (verdict, reason): the reason is the error if the prediction could not be run; if the gold
        query could not, the verdict is None
    """
    gold, predicted = as_official(gold), as_official(predicted)
    expected = execute(database, gold)
    if expected.error:
        return None, f"the gold query failed: {expected.error}"
    given = execute(database, predicted)
    if given.error:
        return False, given.error
    return same_rows(expected.rows, given.rows, ordered="order by" in gold.lower()), None


def same_rows(gold: Sequence[Row], given: Sequence[Row], ordered: bool) -> bool:
    """Whether two results are equal under some order of the columns; two empty ones are.

    Args:
        ordered: compare lists of rows, instead of multisets
    """
    if not gold and not given:
        return True
    if len(gold) != len(given) or len(gold[0]) != len(given[0]):
        return False
    mine, theirs = (
        [frozenset(Counter(column).items()) for column in zip(*rows, strict=True)]
        for rows in (gold, given)
    )
    orders = _orders(mine, theirs) if Counter(mine) == Counter(theirs) else iter(())
    for order in itertools.islice(orders, MOST_PERMUTATIONS):
        turned = [tuple(row[j] for j in order) for row in given]
        if list(gold) == turned if ordered else Counter(gold) == Counter(turned):
            return True
    return False


def _orders(
    gold: Sequence[frozenset], given: Sequence[frozenset], order: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Every way to put the given columns in the places of gold's that have the same values."""
    if len(order) == len(gold):
        yield order
        return
    for j, values in enumerate(given):
        if j not in order and values == gold[len(order)]:
            yield from _orders(gold, given, (*order, j))


def rouge(output: str, answers: Mapping[str, Any]) -> Figures:
    """F-measures of ROUGE-1, -2 and -L by the package `rouge-score`, unstemmed.

    Args:
        answers: has the reference text as "reference"

    Source:
        Lin 2004, ROUGE: a package for automatic evaluation of summaries.
    """
    each = _rouge().score(answers["reference"], output)
    figures = {name: one.fmeasure for name, one in each.items()}
    return {"score": figures["rougeL"], **figures}


@cache
def _rouge() -> Any:
    from rouge_score.rouge_scorer import RougeScorer  # nltk, which it loads, takes half a second

    return RougeScorer(["rouge1", "rouge2", "rougeL"])


def squad(output: str, answers: Mapping[str, Any]) -> Figures:
    """Exact match and F1 as SQuAD v2's official script computes them: the best over gold answers.

    If a question has no answer, the right output is empty once normalised.

    Args:
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
    if not one or not two:
        return float(one == two)
    return 2 * (Counter(one) & Counter(two)).total() / (len(one) + len(two))


def spider(output: str, answers: Mapping[str, Any]) -> Figures:
    """Execution accuracy, and as "why" the error of a query that failed.

    Args:
        answers: has the path of the database as "database" and the gold query as "gold"
    """
    right, why = execution_accuracy(answers["database"], answers["gold"], output)
    return ({} if right is None else {"score": float(right)}) | ({"why": why} if why else {})


SCORERS = {"rouge": rouge, "squad": squad, "spider": spider}
SCORE_NAMES = {"rouge": "ROUGE-L", "squad": "exact match", "spider": "execution accuracy"}


def score(scored: ScoredSet, index: int, output: str) -> Figures | None:
    """The figures of one output.

    Args:
        index: the prompt's number in it

    Returns:
        the figures, None if the set has no scorer or the prompt no answers
    """
    answers = scored.items[index].answers
    known = scored.scorer and answers
    return SCORERS[scored.scorer](scored.answer(output).strip(), answers) if known else None
