"""The token that follows a row of logits, drawn from its warped distribution (draw).

This is the definition of `decoders.warp` and `Distribution.draw` once more, for kernels: masses in
float64, added up by rising id.
"""

import math

import numpy as np
from numba import njit

UNDER_ONE = 1 - 2**-52  # as in `decoders.distribution`
COLUMNS = 256  # numbers that are compared at once


@njit(error_model="numpy")
def weigh(row, warping, masses):
    """Write a row's warped distribution.

    Args:
        row: the logits (V,)
        warping: temperature, where 0 leaves the likeliest token; number of the likeliest tokens to
            look at, or 0 for all of them; whether these are all of top-k's, so that top-p is a part
            of their mass alone; top-p and min-p, as in a Warping
        masses: the distribution (V,)
    """
    temperature, held, known = warping[0], np.int64(warping[1]), warping[2] > 0
    best = likeliest(row, 1)[0]
    if temperature == 0.0:
        masses[:] = 0.0
        masses[best] = 1.0
        return
    highest, whole = row[best], 0.0
    if held == 0 or not known:
        for i in range(len(row)):
            masses[i] = math.exp((row[i] - highest) / temperature)
            whole += masses[i]
    if held == 0:
        masses /= whole
        return
    ids = likeliest(row, held)
    few = np.empty(len(ids))
    for j in range(len(ids)):
        few[j] = math.exp((row[ids[j]] - highest) / temperature)
    kept = cut(few, few.sum() if known else whole, warping[3], warping[4])
    if kept == len(few) < len(row) and not known:  # others may stay, too
        ids = np.argsort(-row, kind="mergesort")
        few = masses[ids]
        kept = cut(few, whole, warping[3], warping[4])
    whole = few[:kept].sum()
    masses[:] = 0.0
    for j in range(kept):
        masses[ids[j]] = few[j] / whole


@njit(error_model="numpy")
def draw(masses, number):
    """The token that a uniform number, 0 <= number < 1, draws from masses (V,)."""
    left, last = number * masses.sum() * UNDER_ONE, 0
    for i in range(len(masses)):
        if masses[i] > 0.0:
            last = i
            left -= masses[i]
            if left < 0.0:
                break
    return last


@njit(error_model="numpy")
def likeliest(row, count):
    """The ids of the largest numbers of a row, falling; of equals the lower id first."""
    size, lines = len(row), len(row) // COLUMNS
    ids = np.zeros(min(count, size), np.int64)  # any will do for a row without numbers
    if len(ids) == 0:
        return ids
    found = 0
    if lines < 2 or len(ids) > COLUMNS // 2:
        for i in range(size):
            found = insert(row, i, ids, found)
        return ids
    # Think of the row as lines of COLUMNS numbers: the largest ones lie in the columns with the
    # largest maxima, and the maxima of many columns are found at once.
    highest = row[:COLUMNS].copy()
    for line in range(1, lines):
        start = line * COLUMNS
        for column in range(COLUMNS):
            x = row[start + column]
            highest[column] = x if x > highest[column] else highest[column]
    for column in range(COLUMNS):
        found = insert(highest, column, ids, found)
    least, found = highest[ids[found - 1]], 0
    for column in range(COLUMNS):
        if highest[column] >= least:
            for i in range(column, lines * COLUMNS, COLUMNS):
                found = insert(row, i, ids, found)
    for i in range(lines * COLUMNS, size):
        found = insert(row, i, ids, found)
    return ids


@njit(error_model="numpy")
def insert(row, i, ids, found):
    """Put an id among the `found` ones of the largest numbers, if it belongs there.

    Returns how many there are now.
    """
    x = row[i]
    if found == len(ids):
        last = ids[found - 1]
        if x < row[last] or (x == row[last] and i > last) or x != x:
            return found
        found -= 1
    j = found
    while j > 0 and (row[ids[j - 1]] < x or (row[ids[j - 1]] == x and ids[j - 1] > i)):
        ids[j] = ids[j - 1]
        j -= 1
    ids[j] = i
    return found + 1


@njit(error_model="numpy")
def cut(masses, whole, top_p, min_p):
    """How many of the falling masses top-p and then min-p keep."""
    kept, before = 0, 0.0
    for mass in masses:
        if before >= top_p * whole or mass < min_p * masses[0]:
            break
        before += mass
        kept += 1
    return kept
