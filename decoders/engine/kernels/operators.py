"""The operators of a transformer between its products, attention among them, for numba to compile.

All take addresses of float32 numbers that lie one after another; tables and caches may be in
bfloat16. Each row's result depends on this row alone, with sums in a fixed order, so it has the
same bits in any pass. Attention of one token at a time (attend_token) has inner loops that are
written for LLVM; only the rows that a token sees take part in its sums, in their order.

A model in bfloat16 rounds each operator's result. So does `round_off` at the end of an instruction,
and, where it stands for several operators, the instruction itself before that (`twice`). Attention
rounds its result alone.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types

from decoders.engine.kernels import NumberType
from decoders.engine.kernels.tiles import (
    F32,
    I64,
    LANES,
    WIDE,
    Repeat,
    address,
    bits_of,
    choose,
    half,
    load,
    load_as,
    multiply_add,
    pointer,
    pointer_to_bytes,
    pointer_to_halves,
    pointer_to_integers,
    power_of_two,
    real,
    rounded,
    shuffled,
    splat,
    store,
    written,
    zeros,
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


@njit(error_model="numpy")
def round_off(x, count):
    """Round numbers to bfloat16."""
    numbers = carray(pointer(x), (count,))
    for i in range(count):
        numbers[i] = rounded(numbers[i])


@njit(error_model="numpy")
def maybe(x, twice):
    return rounded(x) if twice else x


@njit(error_model="numpy")
def embed(ids, n, table, width, narrow, factor, out):
    """The rows (n, width) of a table, which is in bfloat16 if it is narrow, times a factor."""
    tokens = carray(pointer_to_integers(ids), (n,))
    for i in range(n):
        target = carray(pointer(out + 4 * i * width), (width,))
        if narrow:
            halves = carray(pointer_to_halves(table + 2 * tokens[i] * width), (width,))
            for j in range(width):
                target[j] = real(halves[j]) * factor
        else:
            row = carray(pointer(table + 4 * tokens[i] * width), (width,))
            for j in range(width):
                target[j] = row[j] * factor


@njit(fastmath=SUMS, error_model="numpy")
def norm(x, n, weight, width, eps, twice, out):
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
            target[j] = scale[j] * maybe(row[j] * length, twice)


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
def rotate(x, n, heads, size, cos, sin, twice, out):
    """Rotate the halves of each head's row: (n, heads, size)."""
    middle = size // 2
    for i in range(n):
        c = carray(pointer(cos + 4 * i * middle), (middle,))
        s = carray(pointer(sin + 4 * i * middle), (middle,))
        for head in range(heads):
            row = carray(pointer(x + 4 * (i * heads + head) * size), (size,))
            target = carray(pointer(out + 4 * (i * heads + head) * size), (size,))
            for j in range(middle):
                first, second = row[j], row[j + middle]
                target[j] = maybe(first * c[j], twice) - maybe(second * s[j], twice)
                target[j + middle] = maybe(second * c[j], twice) + maybe(first * s[j], twice)


@njit(error_model="numpy")
def gelu(x, by_tanh):
    if by_tanh:  # 1 + tanh(z) is 2 sigmoid(2 z)
        z = F(1.5957691216057308) * (x + F(0.044715) * x * x * x)
        return x * (F(1.0) / (F(1.0) + exponential(-z)))
    return F(0.5) * x * (F(1.0) + F(math.erf(x * F(0.7071067811865476))))


@njit(error_model="numpy")
def gated(gate, up, count, how, twice, out):
    """activation(gate) * up, see ACTIVATIONS."""
    g = carray(pointer(gate), (count,))
    u = carray(pointer(up), (count,))
    target = carray(pointer(out), (count,))
    if how:
        for i in range(count):
            target[i] = gelu(g[i], how == 1)
    else:
        for i in range(count):
            target[i] = g[i] / (F(1.0) + exponential(-g[i]))
    if twice:
        round_off(out, count)
    for i in range(count):
        target[i] *= u[i]


@njit(error_model="numpy")
def cap(x, count, most, twice, out):
    """most * tanh(x / most)."""
    numbers, target = carray(pointer(x), (count,)), carray(pointer(out), (count,))
    for i in range(count):
        share = F(math.tanh(maybe(numbers[i] / most, twice)))
        target[i] = maybe(share, twice) * most


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
def write(x, n, rows, width, narrow, cache):
    """Copy rows x (n, width) to these rows of a cache, which is in bfloat16 if it is narrow."""
    places = carray(pointer_to_integers(rows), (n,))
    for i in range(n):
        row = carray(pointer(x + 4 * i * width), (width,))
        if narrow:
            halves = carray(pointer_to_halves(cache + 2 * places[i] * width), (width,))
            for j in range(width):
                halves[j] = half(row[j])
        else:
            target = carray(pointer(cache + 4 * places[i] * width), (width,))
            for j in range(width):
                target[j] = row[j]


KEYS = 4  # keys of a turn, whose products are added up together
HEADS = 4  # heads of a turn, which share the values that it reads
VECTORS = 4 if WIDE else 2  # vectors of values of a turn
ROOM = 4 * KEYS  # bytes that are written beyond the last score


def width_of(form: NumberType) -> Any:
    return I64(4 if form == NumberType.FLOAT32 else 2)


def totals(builder: Any, vectors: list[Any]) -> Any:
    """The sums of four vectors' numbers. Each is the same, wherever its vector stands."""

    def halves(a: Any, b: Any, order: list[int]) -> Any:
        """Lane by lane the sum of what two orders of lanes take of each four lanes of a and b."""
        lanes = [
            [LANES * (lane // 4) + four + lane % 4 for four in range(0, LANES, 4) for lane in each]
            for each in (order[:4], order[4:])
        ]
        return builder.fadd(*(shuffled(builder, a, b, each) for each in lanes))

    # Of each four lanes: a0 + a2, b0 + b2, a1 + a3, b1 + b3; then a, b, c, d.
    pairs = [halves(a, b, [0, 4, 1, 5, 2, 6, 3, 7]) for a, b in (vectors[:2], vectors[2:])]
    total, lanes = halves(pairs[0], pairs[1], [0, 1, 4, 5, 2, 3, 6, 7]), LANES
    while lanes > 4:
        lanes //= 2
        total = builder.fadd(
            *(shuffled(builder, total, total, range(b, b + lanes)) for b in (0, lanes))
        )
    return total


def multiplying_keys(form: NumberType) -> Any:
    """A function that writes the products of a query with the keys that it sees, in this format.

    Its arguments are the address of the query, its size, which is a multiple of LANES, the address
    of the first key, the bytes from one row to the next, the address of the visible rows and their
    number, and where the products go; up to ROOM bytes after them are written, too. The result is
    the largest product.
    """

    @written(types.float32(*[types.int64] * 7), f"products.{form.name}")
    def multiply(
        builder: Any, q: Any, size: Any, keys: Any, step: Any, places: Any, count: Any, out: Any
    ) -> Any:
        last = builder.sub(count, I64(1))
        turn = Repeat(
            builder, count, KEYS, [ir.Constant(ir.VectorType(F32, KEYS), [F32(-math.inf)] * KEYS)]
        )
        rows = []
        for k in range(KEYS):
            i = builder.add(turn.i, I64(k))
            i = builder.select(builder.icmp_signed("<", i, last), i, last)  # the last one again
            row = load(builder, address(builder, places, (i, I64(8))), I64, align=8)
            rows.append(address(builder, keys, (row, step)))
        inner = Repeat(builder, size, LANES, zeros(KEYS))
        query = load(builder, address(builder, q, (inner.i, I64(4))))
        parts = [
            load_as(builder, form, address(builder, row, (inner.i, width_of(form)))) for row in rows
        ]
        inner.close(
            [
                multiply_add(builder, part, query, total)
                for part, total in zip(parts, inner.values, strict=True)
            ]
        )
        total, (highest,) = totals(builder, inner.values), turn.values
        store(builder, total, address(builder, out, (turn.i, I64(4))))
        turn.close([builder.select(builder.fcmp_ordered(">", total, highest), total, highest)])
        best = builder.extract_element(highest, I64(0))
        for k in range(1, KEYS):
            other = builder.extract_element(highest, I64(k))
            best = builder.select(builder.fcmp_ordered(">", other, best), other, best)
        return best

    return multiply


multiply_keys, multiply_half_keys = map(multiplying_keys, (NumberType.FLOAT32, NumberType.BFLOAT16))


def mixing_values(form: NumberType) -> Any:
    """A function that writes mixtures of the values that a token sees, in this format.

    It is for 1 to HEADS heads that share them. Its arguments are the number of heads, the address
    of their shares (heads, count), the number of rows, the address of the first value, the bytes
    from one row to the next, the address of the rows, how many of a value's numbers are mixed (a
    multiple of LANES), how many numbers lie between two heads' mixtures, and where these go.
    """

    @written(types.void(*[types.int64] * 9), f"mixtures.{form.name}")
    def mix(
        builder: Any, heads: Any, shares: Any, count: Any, values: Any, step: Any, places: Any,
        width: Any, apart: Any, out: Any,
    ) -> None:  # fmt: skip
        def columns(heads: int, begin: Any, end: Any, vectors: int) -> None:
            outer = Repeat(builder, builder.sub(end, begin), vectors * LANES)
            column = builder.add(begin, outer.i)
            inner = Repeat(builder, count, 1, zeros(heads * vectors))
            row = load(builder, address(builder, places, (inner.i, I64(8))), I64, align=8)
            line = address(builder, values, (row, step), (column, width_of(form)))
            parts = [
                load_as(builder, form, address(builder, line, (I64(LANES * v), width_of(form))))
                for v in range(vectors)
            ]
            sums = []
            for head in range(heads):
                place = address(builder, shares, (count, I64(4 * head)), (inner.i, I64(4)))
                share = splat(builder, load(builder, place, F32))
                for v, part in enumerate(parts):
                    total = inner.values[head * vectors + v]
                    sums.append(multiply_add(builder, part, share, total))
            inner.close(sums)
            for head in range(heads):
                line = address(builder, out, (apart, I64(4 * head)), (column, I64(4)))
                for v in range(vectors):
                    place = address(builder, line, I64(4 * LANES * v))
                    store(builder, inner.values[head * vectors + v], place)
            outer.close()

        def some(heads: int) -> None:
            rest = builder.srem(width, I64(VECTORS * LANES))
            whole = builder.sub(width, rest)
            columns(heads, I64(0), whole, VECTORS)
            columns(heads, whole, width, 1)

        choose(builder, heads, HEADS, some)

    return mix


mix_values, mix_half_values = map(mixing_values, (NumberType.FLOAT32, NumberType.BFLOAT16))


@njit(error_model="numpy")
def number(place, i, narrow):
    """A number of a row of a cache, which is in bfloat16 if it is narrow."""
    if narrow:
        return real(carray(pointer_to_halves(place), (i + 1,))[i])
    return carray(pointer(place), (i + 1,))[i]


@njit(error_model="numpy")
def score(q, size, keys, step, places, count, scale, softcap, narrow, out):
    """Write the scores of a query: its products with the keys that it sees, scaled and capped.

    Returns the highest.
    """
    whole = size // LANES * LANES
    if narrow:
        highest = multiply_half_keys(q, whole, keys, step, places, count, out) * F(scale)
    else:
        highest = multiply_keys(q, whole, keys, step, places, count, out) * F(scale)
    scores = carray(pointer(out), (count,))
    if whole < size:
        rows = carray(pointer_to_integers(places), (count,))
        query = carray(pointer(q), (size,))
        for j in range(count):
            for d in range(whole, size):
                scores[j] += query[d] * number(keys + rows[j] * step, d, narrow)
    for j in range(count):
        scores[j] *= F(scale)
    if softcap:
        for j in range(count):
            scores[j] = F(softcap) * F(math.tanh(scores[j] / F(softcap)))
    if softcap or whole < size or scale < 0:
        highest = F(-np.inf)
        for j in range(count):
            highest = max(highest, scores[j])
    return highest


@njit(error_model="numpy")
def mix(heads, shares, count, values, step, places, width, narrow, out):
    """Write the mixtures of values, see `mixing_values`, of any number of heads and any width."""
    whole = width // LANES * LANES
    if whole < width:
        rows = carray(pointer_to_integers(places), (count,))
        every = carray(pointer(shares), (heads, count))
        mixed = carray(pointer(out), (heads, width))
        for head in range(heads):
            for d in range(whole, width):
                mixed[head, d] = F(0.0)
            for j in range(count):
                for d in range(whole, width):
                    value = number(values + rows[j] * step, d, narrow)
                    mixed[head, d] += every[head, j] * value
    for head in range(0, heads, HEADS):
        some, own = min(HEADS, heads - head), shares + 4 * head * count
        target = out + 4 * head * width
        if narrow:
            mix_half_values(some, own, count, values, step, places, whole, width, target)
        else:
            mix_values(some, own, count, values, step, places, whole, width, target)


@njit(fastmath=SUMS, error_model="numpy")
def shares(scores, highest, sink):
    """Turn scores, given the highest, into shares of one, of which a sink has one (-inf: none)."""
    highest = max(F(sink), highest)
    total = exponential(F(sink) - highest)
    for j in range(len(scores)):
        scores[j] = exponential(scores[j] - highest)
        total += scores[j]
    part = F(1.0) / total
    for j in range(len(scores)):
        scores[j] *= part


@njit(error_model="numpy")
def visible(line, i, n, masks, window, places):
    """Write the rows that token i of a request sees into `places`; return how many there are.

    Only these rows take part in sums, so gaps between them change no bit of a result.
    """
    past, mask, opening = line[3], line[4], line[5]
    count = 0
    if mask < 0:
        first = max(0, past + i + 1 - window) if window > 0 else 0
        for row in range(first, past + i + 1):
            places[count] = row
            count += 1
        return count
    for row in range(opening):
        places[count] = row
        count += 1
    wide = past + n - opening
    bits = carray(pointer_to_bytes(masks + mask + i * wide), (wide,))
    for row in range(wide):
        if bits[row]:
            places[count] = row + opening
            count += 1
    return count


@njit(error_model="numpy")
def attend_token(token, group, q, heads, groups, size, wide, keys, values, segments, requests,
                 masks, window, scale, softcap, sinks, out, narrow, scratch):  # fmt: skip
    """Attention of one packed token in the heads that share a key.

    `decoders.engine.kernels.program.attend` tells the rest. At `scratch` is room for a row's number
    and its score in each of these heads, for all rows, and ROOM.
    """
    lines = carray(pointer_to_integers(segments), (requests, 6))
    r = 0
    while lines[r, 1] <= token:
        r += 1
    line = lines[r]
    n, base, shared, first = line[1] - line[0], line[2], heads // groups, group * groups
    places = carray(pointer_to_integers(scratch), (line[3] + n,))
    count = visible(line, token - line[0], n, masks, window, places)
    scores = scratch + 8 * (line[3] + n)
    query = q + 4 * (token * heads + first) * size
    bytes = 2 if narrow else 4
    step = bytes * shared * size
    place = keys + base * step + bytes * group * size
    for i in range(groups):
        own = scores + 4 * i * count
        highest = score(
            query + 4 * i * size, size, place, step, scratch, count, scale, softcap, narrow, own
        )
        sink = F(-np.inf)
        if sinks != 0:
            sink = carray(pointer(sinks), (heads,))[first + i]
        shares(carray(pointer(own), (count,)), highest, sink)
    step = bytes * shared * wide
    place = values + base * step + bytes * group * wide
    target = out + 4 * (token * heads + first) * wide
    mix(groups, scores, count, place, step, scratch, wide, narrow, target)
