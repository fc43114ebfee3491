"""A program whose instructions are launches of Triton's kernels on a GPU (Launches).

A token's row has the same bits whatever other tokens a pass has (`lowering.kernels` says why). What
there is no kernel for is an operator of torch, as in `Tensors`.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton

from decoders.devices import device_of
from decoders.engine.attention.interface import of_layer
from decoders.engine.attention.kernels import attend_packed
from decoders.engine.kernels.codes import Code
from decoders.engine.lowering import kernels
from decoders.engine.lowering.lower import CannotLower, Instruction, Lowering, Slice
from decoders.engine.lowering.tensors import Group, Results, Tensors

ROWS = 32  # of weights that one program multiplies
BLOCK_BYTES = 256  # of each of these rows at a time: with other blocks, sums would have other bits
TOKENS = 64  # that one program multiplies them by
# Bytes of shared memory that blocks in flight may take: of a card before capability 8.0, and later.
SHARED = {False: 48 * 1024, True: 88 * 1024}


def product_tiles(m: int, itemsize: int, gated: bool, modern: bool) -> tuple[dict[str, int], int]:
    """The block sizes of a product of m tokens, and how many blocks are in flight."""
    tiles = {1: 1, 2: 2}.get(triton.cdiv(min(m, TOKENS), kernels.COLUMNS.value), 4)
    block = BLOCK_BYTES // itemsize
    size = ((1 + gated) * ROWS + tiles * kernels.COLUMNS.value) * BLOCK_BYTES
    return {"TILES": tiles, "BN": ROWS, "BK": block}, max(1, min(4, SHARED[modern] // size))


class Launches(Tensors):
    """A pass as launches of Triton's kernels.

    Args:
        lowering: the instructions

    Raises:
        CannotLower: in float64, which kernels do not take
    """

    name = "kernels of Triton"

    def __init__(self, lowering: Lowering):
        super().__init__(lowering)
        if lowering.dtype == torch.float64:
            raise CannotLower("there are no kernels for float64")
        self._modern = device_of(lowering.device).has_kernels(lowering.dtype)

    def carry_out(self, group: Group, numbers: Results, inputs: tuple) -> None:
        first = group.parts[0]
        if first.code == Code.NORM:
            self._norm(group, numbers)
        elif first.code == Code.ATTEND:
            self._attend(first, numbers, inputs[3])
        elif first.code == Code.ROTATE and len(group.parts) <= 2:
            self._rotate(group, numbers)
        elif first.code == Code.PRODUCT and group.parts[-1].code in (Code.GATED, Code.ADD):
            self._products(group.parts, numbers)
        elif first.code == Code.PRODUCT:
            for i in range(0, len(group.parts), 3):
                self._products(group.parts[i : i + 3], numbers)
        else:
            super().carry_out(group, numbers, inputs)

    def _products(self, parts: Sequence[Instruction], numbers: Results) -> None:
        products = [part for part in parts if part.code == Code.PRODUCT]
        after = parts[len(products) :]
        x = numbers[products[0].operands[0]].contiguous()
        m, size = x.shape
        weights, biases = zip(*(tensors_of(one.weights[0]) for one in products), strict=True)
        if not all(weight.is_contiguous() for weight in weights) or len(set(map(type, biases))) > 1:
            return self._by_torch(parts, numbers)
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
        tiles, stages = product_tiles(m, x.itemsize, bool(how), self._modern)
        with torch.cuda.device_of(x):
            kernels.product[sum(blocks), triton.cdiv(m, TOKENS)](
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

    def _by_torch(self, parts: Sequence[Instruction], numbers: Results) -> None:
        super().carry_out(Group(tuple(parts)), numbers, ())

    def _attend(self, one: Instruction, numbers: Results, packing: Any) -> None:
        """Always by the same kernel: of chains, others would have other bits."""
        (sinks,), (layer, heads, groups, size, wide) = one.weights, one.integers
        scale, softcap = one.reals
        q, k, v = (numbers[number] for number in one.operands)
        packing, layer = of_layer(packing, layer)
        keys, values = packing.keys[layer], packing.values[layer]
        keys.index_copy_(0, packing.rows, k.view(-1, heads // groups, size))
        values.index_copy_(0, packing.rows, v.view(-1, heads // groups, wide))
        out = attend_packed(
            q.view(-1, heads, size).transpose(0, 1), keys, values, packing.segments,
            packing.table, packing.masks, packing.biases, scale, softcap, packing.window, sinks,
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
            kernels.norm[(x.numel() // size,)](
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
            kernels.rotate[len(cos), heads + more](
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
    return layer.weight[begin:end], None if layer.bias is None else layer.bias[begin:end]


def distance(tensors: Sequence[Any]) -> list[int]:
    """For each of up to three tensors, how many of its numbers after the first it begins."""
    begin = tensors[0].data_ptr()
    every = [(tensor.data_ptr() - begin) // tensors[0].itemsize for tensor in tensors]
    return [*every, 0, 0][:3]
