"""Execution accuracy of predicted SQL: both queries run in a guarded child process, and their rows are compared as Spider's official
evaluation does (Zhong et al. 2020, `result_eq`)."""

import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("sql_child.py")
DEADLINE = 10.0  # seconds of one query
MOST_PERMUTATIONS = 5000

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, or one sentence that says why there are none."""

    rows: list[Row]
    error: str | None = None


def execute(database: Path, query: str, deadline: float = DEADLINE) -> Answer:
    """Run a query read-only in a child process that has little memory, little time, and may neither write nor attach nor load."""
    if not database.is_file():
        return Answer([], f"there is no database {database.name}")
    asked = json.dumps({"database": str(database.resolve()), "query": query, "deadline": deadline})
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(CHILD)], input=asked.encode(), capture_output=True, timeout=deadline + 5, cwd="/", env={},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Answer([], f"stopped after {deadline:g} s")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return Answer([], "its process broke down: it took too much memory or time")
    return Answer([tuple(map(_value, row)) for row in found["rows"]], found["error"])


def _value(value: Any) -> Any:
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def execution_accuracy(database: Path, gold: str, predicted: str) -> tuple[bool | None, str | None]:
    """Whether both give the same rows, and why not if the prediction could not be run; (None, why) if the gold query cannot."""
    expected = execute(database, gold)
    if expected.error:
        return None, f"the gold query failed: {expected.error}"
    given = execute(database, predicted)
    if given.error:
        return False, given.error
    return same_rows(expected.rows, given.rows, ordered="order by" in gold.lower()), None


def same_rows(gold: Sequence[Row], given: Sequence[Row], ordered: bool) -> bool:
    """Equal as multisets of rows, or as lists if `ordered`, under some order of the columns. Two empty results are equal."""
    if not gold and not given:
        return True
    if len(gold) != len(given) or len(gold[0]) != len(given[0]):
        return False
    for order in itertools.islice(
        _orders(list(zip(*gold, strict=True)), list(zip(*given, strict=True))), MOST_PERMUTATIONS
    ):
        turned = [tuple(row[j] for j in order) for row in given]
        if list(gold) == turned if ordered else Counter(gold) == Counter(turned):
            return True
    return False


def _orders(gold: Sequence[Row], given: Sequence[Row]) -> Iterator[list[int]]:
    """The orders of the given columns in which each has the values of gold's column at that place, in any order of the rows."""
    places: dict[frozenset, tuple[list[int], list[int]]] = {}
    for side, columns in enumerate((gold, given)):
        for i, column in enumerate(columns):
            places.setdefault(frozenset(Counter(column).items()), ([], []))[side].append(i)
    if any(len(mine) != len(theirs) for mine, theirs in places.values()):
        return
    yield from _placed(list(places.values()), [0] * len(gold))


def _placed(places: Sequence[tuple[list[int], list[int]]], order: list[int]) -> Iterator[list[int]]:
    """Every way to put each group's given columns in the places of gold's."""
    if not places:
        yield list(order)
        return
    mine, theirs = places[0]
    for each in itertools.permutations(theirs):
        for i, j in zip(mine, each, strict=True):
            order[i] = j
        yield from _placed(places[1:], order)
