"""Scores of outputs, and figures of cells with intervals by a paired bootstrap over items.

A scorer compares an output with an item's answers and returns figures; tables show the one named
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
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from workbench.experiments.journal import CellRows
from workbench.experiments.sets import ScoredSet
from workbench.runs.record import Result
from workbench.show.quantities import FIGURES
from workbench.studies.study import BASELINE, baseline_scheme

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


def execute(database: Path, query: str, deadline: float = DEADLINE) -> tuple[list[Row], str | None]:
    """Run a query in a child process with little memory and time.

    It can only read: no writing, attaching or loading.

    Args:
        deadline: seconds

    Returns:
        the rows, and one sentence if it could not be run
    """
    if not database.is_file():
        return [], f"there is no database {database.name}"
    order = json.dumps({"database": str(database.resolve()), "query": query, "deadline": deadline})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(CHILD)],
            input=order.encode(), capture_output=True, timeout=deadline, cwd="/", env={},
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return [], f"stopped after {deadline:g} s"
    except ValueError:
        return [], "its process broke down: it took too much memory or time"
    rows = [
        tuple(bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in row)
        for row in answer["rows"]
    ]
    return rows, answer["error"]


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
    expected, fault = execute(database, gold)
    if fault:
        return None, f"the gold query failed: {fault}"
    given, fault = execute(database, predicted)
    if fault:
        return False, fault
    return same_rows(expected, given, ordered="order by" in gold.lower()), None


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


RESAMPLES = 2000
COVERED = (2.5, 97.5)  # percentiles
LEAST_ITEMS = 3  # fewer have no interval worth the name


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95% interval.

    Attributes:
        value: the figure over all items
        low: 2.5% of the resamples of the items are below this
        high: 2.5% are above this
    """

    value: float
    low: float
    high: float


TIMES_GREEDY = "x greedy"


def good(cell: CellRows) -> dict[int, Result]:
    # Rows with an error count nowhere.
    return {
        item: row
        for item, row in cell.rows.items()
        if not row.errors and row.metrics.get("new_tokens") is not None
    }


def figure(
    name: str, cell: CellRows, greedy: CellRows | None = None, items: Sequence[int] | None = None
) -> Interval | None:
    """A figure of a cell.

    Args:
        name: a name of `FIGURES`
        greedy: the greedy cell that it is compared with, for TIMES_GREEDY
        items: use only these items; by default all that both cells have

    Returns:
        the figure, None if the cell does not have it
    """
    if FIGURES[name].timed and not cell.spec["timed"]:
        return None
    values = resampled(
        name,
        cell,
        greedy,
        common(cell, *([greedy] if name == TIMES_GREEDY and greedy else []), among=items),
    )
    return None if values is None else interval(values)


def interval(values: np.ndarray) -> Interval:
    # The first is the figure itself, the others are of resamples.
    low, high = np.percentile(values[1:], COVERED)
    return Interval(float(values[0]), float(low), float(high))


def common(*cells: CellRows, among: Sequence[int] | None = None) -> list[int]:
    shared = set.intersection(*(set(good(cell)) for cell in cells))
    return sorted(shared if among is None else shared & set(among))


def resampled(
    name: str, cell: CellRows, greedy: CellRows | None, items: Sequence[int]
) -> np.ndarray | None:
    """A figure, then that of each resample of the items, (RESAMPLES + 1,).

    The resamples depend only on the number of items, so those of two cells are paired.

    Args:
        name: a name of `FIGURES`
        greedy: the greedy cell that it is compared with, for TIMES_GREEDY
        items: the items, all of which the cells have

    Returns:
        the figures, None if the cell does not have them
    """
    if not items or (name == TIMES_GREEDY and greedy is None):
        return None
    if greedy is not None and name == TIMES_GREEDY:
        mine, other = (resampled("tokens/s", each, None, items) for each in (cell, greedy))
        return mine / other if mine is not None and other is not None else None
    ratio = FIGURES[name].ratio
    assert ratio is not None  # all others have one
    groups = _groups(good(cell), items)
    sums = np.array([[sum(map(ratio.above, g)), sum(map(ratio.below, g))] for g in groups])
    if not sums[:, 1].sum() or not (name == "score" or sums[:, 0].sum()):
        return None
    totals = resamples(len(groups)) @ sums
    totals = totals[totals[:, 1] > 0] if (totals[:, 1] <= 0).any() else totals
    return ratio.finish(totals[:, 0] / totals[:, 1])


def _groups(rows: Mapping[int, Result], items: Sequence[int]) -> list[list[Result]]:
    """The rows that are resampled together: all timings of the same prompts.

    Repeated timings are no further prompts. If there are too few prompts for an interval, each
    timing is resampled alone.
    """
    groups: dict[tuple[int, ...], list[Result]] = {}
    for i in items:
        groups.setdefault(tuple(o.prompt for o in rows[i].samples), []).append(rows[i])
    return list(groups.values()) if len(groups) >= LEAST_ITEMS else [[rows[i]] for i in items]


# A report asks for all items and those of each category; a running experiment has more in the next.
@lru_cache(maxsize=8)
def resamples(count: int) -> np.ndarray:
    """How often each item is drawn, (RESAMPLES + 1, count): once each, then resampled."""
    source, each = np.random.default_rng(0), np.full(count, 1 / count)
    return np.vstack([np.ones((1, count)), source.multinomial(count, each, RESAMPLES)])


def greedy_of(cell: CellRows, cells: Sequence[CellRows]) -> CellRows | None:
    if not cell.spec["timed"]:
        return None
    same = {"decoder": BASELINE, "scheme": baseline_scheme(cell.spec["scheme"])}
    return next(
        (c for c in cells if c.block == cell.block and same.items() <= c.spec.items()), None
    )


def below(
    name: str,
    less: CellRows,
    than: CellRows,
    cells: Sequence[CellRows],
    among: Sequence[int] | None = None,
) -> Interval | None:
    """The figure of `than` minus that of `less`, on the items of both; None if not known.

    Args:
        less: the cell that is expected to have the smaller figure
        cells: all cells, among which are the greedy ones
        among: use only these items
    """
    items = common(less, than, among=among)
    one, other = (resampled(name, cell, greedy_of(cell, cells), items) for cell in (less, than))
    if one is None or other is None or len(one) != len(other):
        return None
    return interval(other - one)


def categories(cell: CellRows) -> dict[str, list[int]]:
    """The items of each category, if items are single prompts."""
    items: dict[str, list[int]] = {}
    for item, row in cell.rows.items():
        if len(row.samples) == 1 and row.samples[0].category:
            items.setdefault(row.samples[0].category, []).append(item)
    return items
