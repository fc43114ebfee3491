"""The operators of a transformer between its products, for numba to compile.

All take addresses of float32 numbers that lie one after another. Each row's result depends on this
row alone, with sums in a fixed order, so it has the same bits in any pass.
"""

import math

import numpy as np
from numba import carray, njit

from decoders.engine.kernels.tiles import (
    bits_of,
    pointer,
    pointer_to_integers,
    power_of_two,
)

# Sums may be taken in vectors, in an order that the code alone decides; numbers that are not
# numbers stay so.
SUMS = {"reassoc", "contract", "nsz"}
F = np.float32
LEAST, MOST = F(-87.0), F(88.0)
ROUNDER = F(12582912.0)  # adding 1.5 * 2 ** 23 rounds to a whole number, in the low bits
LOG2_E, LN2_HIGH, LN2_LOW = F(1.44269504088896341), F(0.693359375), F(-2.12194440e-4)


# Otherwise it would have the freedom of whoever calls it first, and lose what it rounds by.
@njit(fastmath=False, error_model="numpy")
def exponential(x):
    """exp(x) in float32 to two units in the last place; 0 below -87. Cephes' polynomial."""
    z = min(max(x, LEAST), MOST) if x == x else x
    shifted = z * LOG2_E + ROUNDER
    n = shifted - ROUNDER
    r = z - n * LN2_HIGH - n * LN2_LOW
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    value = (p * r * r + r + F(1.0)) * power_of_two(bits_of(shifted) + np.int32(127))
    return value if not x < LEAST else F(0.0)


@njit(fastmath=SUMS, error_model="numpy")
def embed(ids, n, table, width, out):
    tokens = carray(pointer_to_integers(ids), (n,))
    for i in range(n):
        row = carray(pointer(table + 4 * tokens[i] * width), (width,))
        target = carray(pointer(out + 4 * i * width), (width,))
        for j in range(width):
            target[j] = row[j]


@njit(fastmath=SUMS, error_model="numpy")
def norm(x, n, weight, width, eps, out):
    """Root mean square norm of n rows."""
    scale = carray(pointer(weight), (width,))
    for i in range(n):
        row = carray(pointer(x + 4 * i * width), (width,))
        target = carray(pointer(out + 4 * i * width), (width,))
        total = F(0.0)
        for j in range(width):
            total += row[j] * row[j]
        length = F(1.0) / math.sqrt(total / F(width) + F(eps))
        for j in range(width):
            target[j] = scale[j] * (row[j] * length)


@njit(error_model="numpy")
def angles(positions, n, frequencies, half, cos_scale, sin_scale, cos, sin):
    """The cosines and sines (n, half) of positions times frequencies."""
    places = carray(pointer_to_integers(positions), (n,))
    speed = carray(pointer(frequencies), (half,))
    cosines = carray(pointer(cos), (n * half,))
    sines = carray(pointer(sin), (n * half,))
    for i in range(n):
        for j in range(half):
            angle = F(places[i]) * speed[j]
            cosines[i * half + j] = F(math.cos(angle)) * F(cos_scale)
            sines[i * half + j] = F(math.sin(angle)) * F(sin_scale)


@njit(error_model="numpy")
def rotate(x, n, heads, size, cos, sin, out):
    """Rotate the halves of each head's row: (n, heads, size)."""
    half = size // 2
    for i in range(n):
        c = carray(pointer(cos + 4 * i * half), (half,))
        s = carray(pointer(sin + 4 * i * half), (half,))
        for head in range(heads):
            row = carray(pointer(x + 4 * (i * heads + head) * size), (size,))
            target = carray(pointer(out + 4 * (i * heads + head) * size), (size,))
            for j in range(half):
                first, second = row[j], row[j + half]
                target[j] = first * c[j] - second * s[j]
                target[j + half] = second * c[j] + first * s[j]


@njit(error_model="numpy")
def gated(gate, up, count, out):
    """silu(gate) * up."""
    g = carray(pointer(gate), (count,))
    u = carray(pointer(up), (count,))
    target = carray(pointer(out), (count,))
    for i in range(count):
        target[i] = g[i] / (F(1.0) + exponential(-g[i])) * u[i]


@njit(error_model="numpy")
def add(x, y, count, out):
    a, b = carray(pointer(x), (count,)), carray(pointer(y), (count,))
    target = carray(pointer(out), (count,))
    for i in range(count):
        target[i] = a[i] + b[i]


@njit(error_model="numpy")
def select(x, wanted, n, width, out):
    places = carray(pointer_to_integers(wanted), (n,))
    for i in range(n):
        row = carray(pointer(x + 4 * places[i] * width), (width,))
        target = carray(pointer(out + 4 * i * width), (width,))
        for j in range(width):
            target[j] = row[j]


@njit(error_model="numpy")
def write(x, n, rows, width, cache):
    """Copy rows x (n, width) to these rows of a cache."""
    places = carray(pointer_to_integers(rows), (n,))
    for i in range(n):
        row = carray(pointer(x + 4 * i * width), (width,))
        target = carray(pointer(cache + 4 * places[i] * width), (width,))
        for j in range(width):
            target[j] = row[j]
