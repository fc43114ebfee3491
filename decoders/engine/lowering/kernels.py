"""Kernels in Triton for the instructions of a program; imported only if Triton is used.

A row's bits depend on this row alone: sums have a fixed order, which neither the number of tokens
nor their places decide, and nothing is added up by several programs. Numbers are rounded where the
model's modules round.
"""

import triton
import triton.language as tl

COLUMNS = tl.constexpr(16)  # tokens of a tile, the fewest that a matrix unit takes


@triton.jit
def rounded(x, like):
    """Numbers in float32, rounded to what a pointer points to."""
    return x.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def active(x, HOW: tl.constexpr):
    if HOW == "silu":
        y = x * tl.sigmoid(x)
    elif HOW == "gelu":
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    else:
        z = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        y = 0.5 * x * (2 * tl.sigmoid(2 * z))  # 1 + tanh(z)
    return y


@triton.jit
def tokens_of(x, rows, k, m, K):
    """A tile of tokens as columns, (BK, COLUMNS)."""
    inside = (rows < m)[None, :] & (k < K)[:, None]
    return tl.load(x + rows[None, :].to(tl.int64) * K + k[:, None], mask=inside, other=0.0)


@triton.jit
def finish(
    acc, gate, out, add, bias, bias_gate, n, rows, N, m,
    HOW: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Write a tile (BN, COLUMNS) of products after what follows them."""
    inside = (n < N)[:, None] & (rows < m)[None, :]
    place = rows[None, :].to(tl.int64) * N + n[:, None]
    if BIAS:
        acc += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
    y = rounded(acc, out)
    if HOW != "":
        if BIAS:
            gate += tl.load(bias_gate + n, mask=n < N, other=0.0).to(tl.float32)[:, None]
        y = rounded(rounded(active(y, HOW), out) * rounded(gate, out), out)
    if ADD:
        y += tl.load(add + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["m"])
def product(
    x, weight, bias, add, out, m, K,
    N_first, N_second, N_third,
    weight_second, weight_third, bias_second, bias_third, out_second, out_third,
    TILES: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    HOW: tl.constexpr, ADD: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Multiply up to 64 tokens, (m, K), by BN rows of one of three weights, each (N, K).

    Each weight is read once for all these tokens. K is taken in blocks of BK, in order.

    Args:
        weight_second, weight_third: how many numbers after `weight` the others begin; likewise of
            `bias` and `out`
        HOW: "", or how the first product is activated before it is multiplied by the second
        ADD: whether `add`, (m, N), is added
    """
    block = tl.program_id(0)
    first, second = tl.cdiv(N_first, BN), tl.cdiv(N_second, BN)
    zero = tl.full([], 0, tl.int64)
    N, w, b, o = N_first, zero, zero, zero
    if HOW == "":
        later, last = block >= first, block >= first + second
        N = tl.where(last, N_third, tl.where(later, N_second, N_first))
        w = tl.where(last, weight_third, tl.where(later, weight_second, w))
        b = tl.where(last, bias_third, tl.where(later, bias_second, b))
        o = tl.where(last, out_third, tl.where(later, out_second, o))
        block -= tl.where(last, first + second, tl.where(later, first, 0))
    n = block * BN + tl.arange(0, BN)
    lines = weight + w + n[:, None].to(tl.int64) * K
    rows = tl.program_id(1) * (COLUMNS * TILES) + tl.arange(0, COLUMNS)
    acc = tl.zeros([BN, COLUMNS], tl.float32)
    gate = tl.zeros([BN, COLUMNS], tl.float32)
    # Four names, because a loop carries no lists.
    acc1, acc2, acc3, gate1, gate2, gate3 = acc, acc, acc, gate, gate, gate
    for i in range(0, K, BK):
        k = i + tl.arange(0, BK)
        inside = (n < N)[:, None] & (k < K)[None, :]
        a = tl.load(lines + k[None, :], mask=inside, other=0.0)
        t = tokens_of(x, rows, k, m, K)
        acc = tl.dot(a, t, acc, input_precision="ieee")
        if TILES > 1:
            t1 = tokens_of(x, rows + COLUMNS, k, m, K)
            acc1 = tl.dot(a, t1, acc1, input_precision="ieee")
        if TILES > 2:
            t2 = tokens_of(x, rows + 2 * COLUMNS, k, m, K)
            t3 = tokens_of(x, rows + 3 * COLUMNS, k, m, K)
            acc2 = tl.dot(a, t2, acc2, input_precision="ieee")
            acc3 = tl.dot(a, t3, acc3, input_precision="ieee")
        if HOW != "":
            g = tl.load(lines + weight_second + k[None, :], mask=inside, other=0.0)
            gate = tl.dot(g, t, gate, input_precision="ieee")
            if TILES > 1:
                gate1 = tl.dot(g, t1, gate1, input_precision="ieee")
            if TILES > 2:
                gate2 = tl.dot(g, t2, gate2, input_precision="ieee")
                gate3 = tl.dot(g, t3, gate3, input_precision="ieee")
    out, bias, bias_gate = out + o, bias + b, bias + bias_second
    finish(acc, gate, out, add, bias, bias_gate, n, rows, N, m, HOW, ADD, BIAS)
    if TILES > 1:
        rows += COLUMNS
        finish(acc1, gate1, out, add, bias, bias_gate, n, rows, N, m, HOW, ADD, BIAS)
    if TILES > 2:
        rows += COLUMNS
        finish(acc2, gate2, out, add, bias, bias_gate, n, rows, N, m, HOW, ADD, BIAS)
        rows += COLUMNS
        finish(acc3, gate3, out, add, bias, bias_gate, n, rows, N, m, HOW, ADD, BIAS)


@triton.jit
def norm(
    x, weight, add, out, size, eps, BLOCK: tl.constexpr, LATE: tl.constexpr, ADD: tl.constexpr
):  # fmt: skip
    """Divide a row by its root mean square, multiply it by the weight, and add another to it.

    Args:
        LATE: whether it is rounded after the weight alone
    """
    k = tl.arange(0, BLOCK)
    inside = k < size
    place = tl.program_id(0).to(tl.int64) * size + k
    row = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    unit = row * tl.rsqrt(tl.sum(row * row) / size + eps)
    if not LATE:
        unit = rounded(unit, out)
    y = rounded(unit * tl.load(weight + k, mask=inside, other=0.0).to(tl.float32), out)
    if ADD:
        y += tl.load(add + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotate(
    x, out, cos, sin, heads, heads_second, second, out_second,
    HALF: tl.constexpr, BLOCK: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Turn one head of one token, of the first or the second operand.

    Args:
        second, out_second: how many numbers after `x` and `out` the second operand and its result
            begin
        LATE: whether numbers are rounded at the end alone
    """
    token, head = tl.program_id(0), tl.program_id(1)
    later = head >= heads
    count = tl.where(later, heads_second, heads)
    place = tl.where(later, second, tl.full([], 0, tl.int64))
    goal = tl.where(later, out_second, tl.full([], 0, tl.int64))
    row = (token * count + head - tl.where(later, heads, 0)).to(tl.int64) * (2 * HALF)
    k = tl.arange(0, BLOCK)
    inside = k < HALF
    a = tl.load(x + place + row + k, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + place + row + HALF + k, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(cos + token * HALF + k, mask=inside, other=0.0).to(tl.float32)
    s = tl.load(sin + token * HALF + k, mask=inside, other=0.0).to(tl.float32)
    ac, bs, bc, sa = a * c, -b * s, b * c, a * s
    if not LATE:
        ac, bs, bc, sa = rounded(ac, out), rounded(bs, out), rounded(bc, out), rounded(sa, out)
    tl.store(out + goal + row + k, (ac + bs).to(out.dtype.element_ty), mask=inside)
    tl.store(out + goal + row + HALF + k, (bc + sa).to(out.dtype.element_ty), mask=inside)
