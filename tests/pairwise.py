"""Cases, thinned: each two values of two parameters meet in some case, or every so manieth.

EVERYWHERE=1 takes all."""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import Any

from allpairspy import AllPairs

EVERYWHERE = bool(os.environ.get("EVERYWHERE"))


def part(cases: Iterable[Any], step: int = 2) -> list[Any]:
    """Every `step`-th case, of tests of which a few cases find the same mistakes."""
    return [*cases][:: 1 if EVERYWHERE else step]


def pairwise(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The cases to try, of the values of each parameter."""
    if EVERYWHERE:
        return list(itertools.product(*values))
    places = AllPairs([range(len(each)) for each in values])
    return [tuple(each[i] for each, i in zip(values, case, strict=True)) for case in places]
