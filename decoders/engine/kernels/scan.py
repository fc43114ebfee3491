"""What is read of rows of logits: likeliest tokens, sums of exponentials, what top-p leaves."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from decoders.distribution import MANY, PLAIN, Scan
from decoders.engine.kernels.operators import SUMS, F, exponential
from decoders.engine.kernels.select import largest, likeliest, nucleus

LEAST = np.finfo(np.float32).tiny
STRETCH = 1024  # numbers


@njit(error_model="numpy")
def find(rows: Any, values: Any, ids: Any) -> None:
    """Write the largest numbers of each row (n, V) and their ids, falling, (n, count).

    Of equals the lower id comes first. A row in which something is not a number begins with NaN.
    """
    for r in range(len(rows)):
        row, strange = rows[r], False
        for i in range(len(row)):
            strange |= row[i] != row[i]
        best = likeliest(row, ids.shape[1])
        for j in range(len(best)):
            ids[r, j], values[r, j] = best[j], row[best[j]]
        if strange:
            values[r, 0] = np.nan


@njit(fastmath=SUMS, error_model="numpy")
def spread(rows: Any, highest: Any, temperature: Any, out: Any) -> None:
    """Write the log of the sum of exp((x - highest) / temperature) of each row (n, V).

    Stretches are added up in float32, which is quicker, and they together in float64.
    """
    coldness = F(1.0 / temperature)
    for r in range(len(rows)):
        top = F(highest[r])
        total: Any = 0.0
        for start in range(0, rows.shape[1], STRETCH):
            part, some = rows[r, start : start + STRETCH], F(0.0)
            for i in range(len(part)):
                some += exponential((part[i] - top) * coldness)
            total += some
        out[r] = math.log(total)


@njit(error_model="numpy")
def note(rows: Any, found: Any, begin: int) -> None:
    """Write what is read of rows (n, V), to the rows of `found` from one on.

    Args:
        rows: the rows
        found: values, ids, see `find`; and at temperature 1, `out` of `spread`
        begin: where they go
    """
    values, ids, out = found
    end = begin + len(rows)
    find(rows, values[begin:end], ids[begin:end])
    spread(rows, values[begin:end, 0], 1.0, out[begin:end])


@njit(error_model="numpy")
def leave(row: Any, temperature: float, seen: float, top_p: float, min_p: float, out: Any) -> None:
    """Write what top-p and min-p leave of a row (V,), see `decoders.distribution.Scan.nucleus`."""
    highest = largest(row)
    heat(row, highest, seen, out)
    nucleus(row, out, total(out), top_p, min_p)
    if seen != temperature:
        stay = out > 0
        heat(row, highest, temperature, out)
        for i in range(len(row)):
            out[i] = out[i] if stay[i] else F(0.0)
        left = total(out)
        for i in range(len(row)):
            out[i] /= left


@njit(error_model="numpy")
def heat(row: Any, highest: Any, temperature: float, out: Any) -> None:
    """Write exp((x - highest) / temperature) of a row (V,)."""
    for i in range(len(row)):
        out[i] = exponential((row[i] - F(highest)) / F(temperature))


@njit(fastmath=SUMS, error_model="numpy")
def total(numbers: Any) -> Any:
    """Their sum."""
    whole = 0.0
    for x in numbers:
        whole += x
    return whole


class CompiledScan(Scan):
    """By compiled kernels, for float32 numbers that lie one after another.

    Args:
        find, spread, leave: see above, compiled
    """

    stable = MANY

    def __init__(self, find: Callable, spread: Callable, leave: Callable):
        self._find, self._spread, self._leave = find, spread, leave

    def likeliest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        if count > MANY:
            return PLAIN.likeliest(rows, count)
        values = np.empty((len(rows), count), rows.dtype)
        ids = np.empty((len(rows), count), np.int64)
        self._find(rows, values, ids)
        return values, ids

    def excesses(self, rows: np.ndarray, highest: np.ndarray, temperature: float) -> np.ndarray:
        out = np.empty(len(rows))
        self._spread(rows, highest, max(temperature, LEAST), out)
        return out

    def nucleus(
        self, row: np.ndarray, temperature: float, seen: float, top_p: float, min_p: float
    ) -> np.ndarray:
        out = np.empty_like(row)
        self._leave(row, max(temperature, LEAST), max(seen, LEAST), top_p, min_p, out)
        return out
