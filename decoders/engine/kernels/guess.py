"""The token that will probably follow a row of logits, for numba to compile.

Ties and roundings may differ from those of `decoders.warp`: whoever asks compares.
"""

import math

import numpy as np
from numba import njit

UNDER_ONE = 1 - 2**-52  # as in `decoders.distribution`


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
    ids = np.empty(min(count, len(row)), np.int64)
    found = 0
    for i in range(len(row)):
        if found == len(ids) and row[i] <= row[ids[found - 1]]:
            continue
        found = min(found + 1, len(ids))
        j = found - 1
        while j > 0 and row[ids[j - 1]] < row[i]:
            ids[j] = ids[j - 1]
            j -= 1
        ids[j] = i
    return ids


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
