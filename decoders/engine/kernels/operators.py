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
    pointer_to_bytes,
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


@njit(error_model="numpy")
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


@njit(fastmath=SUMS, error_model="numpy")
def dot(x, y, size):
    a, b = carray(pointer(x), (size,)), carray(pointer(y), (size,))
    total = F(0.0)
    for j in range(size):
        total += a[j] * b[j]
    return total


@njit(error_model="numpy")
def add_times(out, factor, x, size):
    """Add factor * x to a row."""
    target, row = carray(pointer(out), (size,)), carray(pointer(x), (size,))
    for j in range(size):
        target[j] += factor * row[j]


@njit(error_model="numpy")
def shares(scores, sink):
    """Turn scores into shares of one, of which a sink has a part, too (-inf: none)."""
    highest = F(sink)
    for j in range(len(scores)):
        highest = max(highest, scores[j])
    for j in range(len(scores)):
        scores[j] = exponential(scores[j] - highest)
    total = exponential(F(sink) - highest)
    for j in range(len(scores)):
        total += scores[j]
    for j in range(len(scores)):
        scores[j] /= total


@njit(error_model="numpy")
def visible(line, i, n, masks, window, seen):
    """Write the rows that token i of a request sees into `seen`; return how many there are.

    Only these rows take part in sums, so gaps between them change no bit of a result.
    """
    past, mask, opening = line[3], line[4], line[6]
    count = 0
    if mask < 0:
        first = max(0, past + i + 1 - window) if window > 0 else 0
        for row in range(first, past + i + 1):
            seen[count] = row
            count += 1
        return count
    for row in range(opening):
        seen[count] = row
        count += 1
    wide = past + n - opening
    bits = carray(pointer_to_bytes(masks + mask + i * wide), (wide,))
    for row in range(wide):
        if bits[row]:
            seen[count] = row + opening
            count += 1
    return count


@njit(error_model="numpy")
def attend_token(token, q, heads, groups, size, wide, keys, values, segments, requests, masks,
                 window, scale, softcap, sinks, out, scratch):  # fmt: skip
    """Attention of one packed token; see `decoders.engine.kernels.parts.attend`.

    At `scratch` is room for a row's number and its score in each head, for all rows.
    """
    lines = carray(pointer_to_integers(segments), (requests, 7))
    r = 0
    while lines[r, 1] <= token:
        r += 1
    line = lines[r]
    n, base, shared = line[1] - line[0], line[2], heads // groups
    seen = carray(pointer_to_integers(scratch), (line[3] + n,))
    count = visible(line, token - line[0], n, masks, window, seen)
    scores = carray(pointer(scratch + 8 * (line[3] + n)), (heads, count))
    query = q + 4 * token * heads * size
    target = out + 4 * token * heads * wide
    # Rows before heads: the memory of a row is read from one end to the other.
    for j in range(count):
        key = keys + 4 * (base + seen[j]) * shared * size
        for head in range(heads):
            score = dot(query + 4 * head * size, key + 4 * (head // groups) * size, size)
            scores[head, j] = score * F(scale)
    for head in range(heads):
        if softcap:
            for j in range(count):
                scores[head, j] = F(softcap) * F(math.tanh(scores[head, j] / F(softcap)))
        sink = F(-np.inf)
        if sinks != 0:
            sink = carray(pointer(sinks), (heads,))[head]
        shares(scores[head], sink)
    carray(pointer(target), (heads * wide,))[:] = F(0.0)
    for j in range(count):
        value = values + 4 * (base + seen[j]) * shared * wide
        for head in range(heads):
            add_times(
                target + 4 * head * wide, scores[head, j], value + 4 * (head // groups) * wide, wide
            )
