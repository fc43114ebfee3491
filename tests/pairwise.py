"""Grids of parameters, thinned: each two values of two parameters meet in some case.

EVERYWHERE=1 takes the whole grid."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

from allpairspy import AllPairs

EVERYWHERE = bool(os.environ.get("EVERYWHERE"))


def pairwise(*values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The cases to try, of the values of each parameter."""
    if EVERYWHERE:
        return list(itertools.product(*values))
    places = AllPairs([range(len(each)) for each in values])
    return [tuple(each[i] for each, i in zip(values, case, strict=True)) for case in places]
