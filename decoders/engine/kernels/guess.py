"""The token that follows a row of logits, drawn from its warped distribution (draw).

This is `decoders.distribution` once more, `warp` and `draw`, for kernels: masses in float64, added
up by rising id.
"""

import math

import numpy as np
from numba import njit

from decoders.engine.kernels.select import largest, likeliest, nucleus

UNDER_ONE = 1 - 2**-52  # as in `decoders.distribution`


@njit(error_model="numpy")
def weigh(row, warping, masses):
    """Write a row's warped distribution.

    Args:
        row: the logits (V,)
        warping: temperature, where 0 leaves the likeliest token, top-k, top-p and min-p, as in a
            Warping
        masses: the distribution (V,)
    """
    temperature, top_k, top_p, min_p = warping[0], np.int64(warping[1]), warping[2], warping[3]
    if temperature == 0.0 or top_k:
        ids = likeliest(row, top_k if temperature else 1)
        few = np.ones(len(ids))
        for j in range(1, len(ids)):
            few[j] = mass(row[ids[j]], row[ids[0]], temperature)
        kept = cut(few, top_p, min_p)
        whole = few[:kept].sum()
        masses[:] = 0.0
        for j in range(kept):
            masses[ids[j]] = few[j] / whole
        return
    highest, whole = largest(row), 0.0
    for i in range(len(row)):
        masses[i] = mass(row[i], highest, temperature)
        whole += masses[i]
    nucleus(row, masses, whole, top_p, min_p)


@njit(error_model="numpy")
def mass(x, highest, temperature):
    """The mass of a logit, where that of the highest one is 1."""
    return math.exp((np.float64(x) - np.float64(highest)) / temperature)


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
def cut(masses, top_p, min_p):
    """How many of the falling masses top-p and then min-p keep."""
    kept, before, most = 0, 0.0, top_p * masses.sum()
    for mass in masses:
        if before >= most or mass < min_p * masses[0]:
            break
        before += mass
        kept += 1
    return kept
