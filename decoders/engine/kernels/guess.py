"""The token that will probably follow a row of logits, for numba to compile."""

import math

import numpy as np
from numba import njit

UNDER_ONE = 1 - 2**-52  # as in `decoders.randomness`


@njit(error_model="numpy")
def guess(row, temperature, held, known, top_p, min_p, number):
    """The token that a uniform number draws from a row's warped distribution.

    Ties and roundings may differ from those of `decoders.warp`: whoever asks compares.

    Args:
        row: the logits (V,)
        temperature: 0 takes the likeliest token
        held: number of the likeliest tokens to look at; 0 for all of them
        known: whether they are all of top-k's, so that top-p is a part of their mass alone
        top_p, min_p: as in a Warping
        number: 0 <= number < 1
    """
    best = 0
    for i in range(len(row)):
        if row[i] > row[best]:
            best = i
    if temperature == 0.0:
        return best
    highest = row[best]
    if held == 0 or not known:
        whole = 0.0
        for i in range(len(row)):
            whole += math.exp((row[i] - highest) / temperature)
    if held == 0:
        left = number * whole * UNDER_ONE
        for i in range(len(row)):
            left -= math.exp((row[i] - highest) / temperature)
            if left < 0.0:
                return i
        return best
    ids = likeliest(row, held)
    masses = np.empty(len(ids))
    for j in range(len(ids)):
        masses[j] = math.exp((row[ids[j]] - highest) / temperature)
    kept = cut(masses, masses.sum() if known else whole, top_p, min_p)
    left = number * masses[:kept].sum() * UNDER_ONE
    for j in np.argsort(ids[:kept]):
        left -= masses[j]
        if left < 0.0:
            return ids[j]
    return best


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
