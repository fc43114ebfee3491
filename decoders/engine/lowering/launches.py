"""A program whose instructions are launches of Triton's kernels on a GPU (Launches).

It is imported only if Triton is used. A row's bits depend on this row alone: sums have a fixed
order, which neither the number of tokens nor their places decide, and nothing is added up by
several programs. So a token's row has the same bits whatever other tokens a pass has. Numbers are
rounded where the model's modules round. What there is no kernel for is an operator of torch.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from decoders.engine.attention.interface import Layered, Packing, of_layer
from decoders.engine.attention.kernels import attend_packed
from decoders.engine.kernels import Code
from decoders.engine.lowering.groups import Group, by_torch, grouped, last_uses
from decoders.engine.lowering.lower import Instruction, Lowering, Slice

Results = dict[int, torch.Tensor]
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


ROWS = 32  # of weights that one program multiplies
BLOCK_BYTES = 256  # of each of these rows at a time: with other blocks, sums would have other bits
TOKENS = 64  # that one program multiplies them by
SHARED = 88 * 1024  # bytes of shared memory that blocks in flight may take


def product_tiles(m: int, itemsize: int, gated: bool) -> tuple[dict[str, int], int]:
    """The block sizes of a product of m tokens, and how many blocks are in flight."""
    tiles = {1: 1, 2: 2}.get(triton.cdiv(min(m, TOKENS), COLUMNS.value), 4)
    block = BLOCK_BYTES // itemsize
    size = ((1 + gated) * ROWS + tiles * COLUMNS.value) * BLOCK_BYTES
    return {"TILES": tiles, "BN": ROWS, "BK": block}, max(1, min(4, SHARED // size))


class Launches:
    """A pass as launches of Triton's kernels.

    Its tensors are (tokens, numbers of a token).

    Args:
        lowering: the instructions

    Attributes:
        groups: the instructions that are carried out together, in their order
    """

    name = "kernels of Triton"

    def __init__(self, lowering: Lowering):
        self._answers = [rows.number for rows in lowering.answers]
        self._given, self._dtype = lowering.given, lowering.dtype
        self.groups = grouped(lowering.instructions, self._answers)
        self._last = last_uses(self.groups, self._answers)

    def __call__(
        self,
        input_ids: torch.Tensor,
        position_ids: torch.Tensor,
        wanted: torch.Tensor,
        packing: Packing | Layered,
        *given: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        numbers: Results = {
            number: tensor.view(tensor.shape[-2], -1)
            for number, tensor in zip(self._given, given, strict=True)
        }
        inputs = input_ids[0], position_ids[0], wanted
        for group, over in zip(self.groups, self._last, strict=True):
            first = group.parts[0]
            if first.code == Code.NORM:
                self._norm(group, numbers)
            elif first.code == Code.ATTEND:
                self._attend(first, numbers, packing)
            elif first.code == Code.ROTATE:
                self._rotate(group, numbers)
            elif first.code == Code.PRODUCT and group.parts[-1].code in (Code.GATED, Code.ADD):
                self._products(group.parts, numbers)
            elif first.code == Code.PRODUCT:
                for i in range(0, len(group.parts), 3):
                    self._products(group.parts[i : i + 3], numbers)
            else:
                operands = [numbers[number] for number in first.operands]
                results = by_torch(first, self._dtype, inputs, operands)
                numbers.update(zip(first.results, results, strict=True))
            for number in over:
                numbers.pop(number, None)
        return tuple(numbers[number] for number in self._answers)

    def _products(self, parts: Sequence[Instruction], numbers: Results) -> None:
        products = [part for part in parts if part.code == Code.PRODUCT]
        after = parts[len(products) :]
        x = numbers[products[0].operands[0]].contiguous()
        m, size = x.shape
        weights, biases = zip(*(tensors_of(one.weights[0]) for one in products), strict=True)
        how = after[0].how if after and after[0].code == Code.GATED else ""
        widths = [len(weight) for weight in weights]
        outs = x.new_empty(m * (widths[0] if how else sum(widths)))
        add = x
        if after and not how:
            (other,) = (n for n in after[0].operands if n != products[0].result)
            add = numbers[other].contiguous()
        offsets = [
            distance(tensors) if tensors[0] is not None else [0] * 3
            for tensors in (weights, biases)
        ]
        widths_of_all = [*widths, 0, 0][:3]
        blocks = [triton.cdiv(width, ROWS) for width in (widths[:1] if how else widths)]
        tiles, stages = product_tiles(m, x.itemsize, bool(how))
        with torch.cuda.device_of(x):
            product[sum(blocks), triton.cdiv(m, TOKENS)](
                x, weights[0], x if biases[0] is None else biases[0], add, outs, m, size,
                *widths_of_all, *offsets[0][1:], *offsets[1][1:],
                m * widths_of_all[0], m * sum(widths_of_all[:2]),
                HOW=how, ADD=add is not x, BIAS=biases[0] is not None, **tiles,
                num_warps=4, num_stages=stages,
            )  # fmt: skip
        if after:
            numbers[after[0].result] = outs.view(m, -1)
        else:
            for one, out in zip(products, outs.split([m * w for w in widths]), strict=True):
                numbers[one.result] = out.view(m, -1)

    def _attend(self, one: Instruction, numbers: Results, packing: Any) -> None:
        (sinks,), (layer, heads, groups, size, wide) = one.weights, one.integers
        scale, softcap = one.reals
        q, k, v = (numbers[number] for number in one.operands)
        packing, layer = of_layer(packing, layer)
        keys, values = packing.keys[layer], packing.values[layer]
        keys.index_copy_(0, packing.rows, k.view(-1, heads // groups, size))
        values.index_copy_(0, packing.rows, v.view(-1, heads // groups, wide))
        out = attend_packed(
            q.view(-1, heads, size).transpose(0, 1), keys, values, packing.segments,
            packing.table, packing.masks, scale, softcap, packing.window, sinks,
        )  # fmt: skip
        numbers[one.result] = out.view(-1, heads * wide)

    def _norm(self, group: Group, numbers: Results) -> None:
        one, *after = group.parts
        (weight,), (size, _), (eps,) = one.weights, one.integers, one.reals
        x = numbers[one.operands[0]].contiguous()
        add, out = x, torch.empty_like(x)
        if after:
            (other,) = (n for n in after[0].operands if n != one.result)
            add = numbers[other].contiguous()
        with torch.cuda.device_of(x):
            norm[(x.numel() // size,)](
                x, weight, add, out, size, eps, BLOCK=triton.next_power_of_2(size),
                LATE=one.how == "late", ADD=bool(after), num_warps=4 if size <= 4096 else 8,
            )  # fmt: skip
        numbers[group.parts[-1].result] = out

    def _rotate(self, group: Group, numbers: Results) -> None:
        first, last = group.parts[0], group.parts[-1]
        heads, size = first.integers
        cos, sin = (numbers[number].contiguous() for number in first.operands[1:])
        given = [numbers[one.operands[0]].contiguous() for one in group.parts]
        outs = given[0].new_empty(sum(x.numel() for x in given))
        more = last.integers[0] if last is not first else 0
        with torch.cuda.device_of(outs):
            rotate[len(cos), heads + more](
                given[0], outs, cos, sin, heads, max(more, 1),
                distance(given)[1], given[0].numel(),
                HALF=size // 2, BLOCK=triton.next_power_of_2(size // 2),
                LATE=cos.dtype != outs.dtype or cos.dtype == torch.float32, num_warps=1,
            )  # fmt: skip
        for one, x, out in zip(
            group.parts, given, outs.split([x.numel() for x in given]), strict=True
        ):
            numbers[one.result] = out.view(x.shape)


def tensors_of(part: Slice) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The weight (outputs, inputs) and the bias of a part of a layer."""
    layer, begin, end = part
    weight = layer.weight[begin:end].contiguous()
    return weight, None if layer.bias is None else layer.bias[begin:end]


def distance(tensors: Sequence[Any]) -> list[int]:
    """For each of up to three tensors, how many of its numbers after the first it begins."""
    begin = tensors[0].data_ptr()
    every = [(tensor.data_ptr() - begin) // tensors[0].itemsize for tensor in tensors]
    return [*every, 0, 0][:3]
