"""A program whose instructions are operators of torch, on any device (Tensors).

It rounds where the model's own modules round. CUDA graphs record it where Triton's kernels cannot
carry out the program. Instructions that one launch carries out are a Group, some nine for each
layer: a launch reads its operand once for all its products, and what follows a product or a norm
and is needed nowhere else is done before numbers go back to memory.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.nn.functional import embedding, gelu, linear, silu

from decoders.engine.attention.interface import (
    Layered,
    Packing,
    attend_layer,
)
from decoders.engine.kernels import Code
from decoders.engine.lowering.lower import CannotLower, Instruction, Lowering, Slice


@dataclass(frozen=True)
class Group:
    """Instructions that are carried out together, in their order.

    A PRODUCT may stand before others of the same operand, before an ADD of its result, or, two of
    them, before the GATED of theirs; a NORM before an ADD of its result; a ROTATE before another.

    Attributes:
        parts: the instructions, the first of which says what kind of a group it is
    """

    parts: tuple[Instruction, ...]

    @property
    def code(self) -> Code:
        return self.parts[0].code

    @property
    def results(self) -> list[int]:
        return [number for part in self.parts for number in part.results]

    @property
    def operands(self) -> list[int]:
        """The results of other groups that it reads."""
        own = set(self.results)
        return [n for part in self.parts for n in part.operands if n not in own]


def grouped(instructions: Sequence[Instruction], answers: Iterable[int]) -> list[Group]:
    """Group instructions, in an order in which each group finds its operands.

    Args:
        instructions: the instructions
        answers: the results that the pass returns

    Raises:
        CannotLower: if there is no such order
    """
    makers = {number: one for one in instructions for number in one.results}
    users: dict[int, list[Instruction]] = defaultdict(list)
    for one in instructions:
        for number in one.operands:
            users[number].append(one)
    group_of: dict[int, list[Instruction]] = {}
    answered = set(answers)

    def alone(number: int, user: Instruction) -> bool:
        """Whether nothing else needs a result, and its instruction is in no group yet."""
        return (
            users[number] == [user]
            and number not in answered
            and makers[number].result not in group_of
        )

    def join(*ones: Instruction) -> None:
        members = list(ones)
        group_of.update((one.result, members) for one in ones)

    for one in instructions:
        sources = [makers.get(number) for number in one.operands]
        if one.code == Code.GATED and all(
            maker and maker.code == Code.PRODUCT and alone(maker.result, one) for maker in sources
        ):
            first, second = sources
            if first and second and first is not second and first.operands == second.operands:
                join(first, second, one)
        # The last of two results that could be added to: it is there later than the other.
        if one.code == Code.ADD:
            for maker in sorted(filter(None, sources), key=instructions.index, reverse=True):
                if maker.code in (Code.PRODUCT, Code.NORM) and alone(maker.result, one):
                    join(maker, one)
                    break
    alike: dict[tuple, list[Instruction]] = defaultdict(list)
    for one in instructions:
        if one.result in group_of:
            continue
        key: tuple = (one.result,)
        if one.code == Code.PRODUCT:
            key = one.code, one.operands
        if one.code == Code.ROTATE:
            # Those of the queries and of the keys of one attention.
            key = one.code, one.operands[1:], users[one.result][0].result
        alike[key].append(one)
    for ones in alike.values():
        join(*ones)
    return in_order([Group(tuple(g)) for g in {id(g): g for g in group_of.values()}.values()])


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Groups in an order in which each finds its operands; CannotLower if there is none."""
    makers = {number: group for group in groups for number in group.results}
    done: dict[int, Group] = {}
    waiting: set[int] = set()
    # An explicit stack: deep models have more groups than Python has frames.
    for last in sorted(groups, key=lambda group: max(group.results)):
        stack = [last]
        while stack:
            group = stack[-1]
            if id(group) in done:
                stack.pop()
                continue
            needed = [
                makers[n] for n in group.operands if n in makers and id(makers[n]) not in done
            ]
            if not needed:
                done[id(group)] = stack.pop()
                continue
            if id(group) in waiting:
                raise CannotLower("its instructions wait for each other")
            waiting.add(id(group))
            stack += needed
    return list(done.values())


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
}
Results = dict[int, torch.Tensor]


class Tensors:
    """A pass as instructions over tensors, each (tokens, numbers of a token).

    Args:
        lowering: the instructions

    Attributes:
        groups: the instructions that are carried out together, in their order
    """

    name = "operators of torch"

    def __init__(self, lowering: Lowering):
        self.dtype = lowering.dtype
        self._answers = [rows.number for rows in lowering.answers]
        self._given = lowering.given
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
        inputs = input_ids[0], position_ids[0], wanted, packing
        for group, over in zip(self.groups, self._last, strict=True):
            self.carry_out(group, numbers, inputs)
            for number in over:
                numbers.pop(number, None)
        return tuple(numbers[number] for number in self._answers)

    def carry_out(self, group: Group, numbers: Results, inputs: tuple) -> None:
        """Carry out the instructions of a group.

        Args:
            group: the group
            numbers: the results by number, which gets those of the group
            inputs: token ids and positions, (tokens,), the tokens that want logits, (wanted,), and
                the packing
        """
        products = [part for part in group.parts if part.code == Code.PRODUCT]
        if products:
            x = numbers[products[0].operands[0]]
            results = multiplied(x, [product.weights[0] for product in products])
            numbers.update(zip((one.result for one in products), results, strict=True))
        for one in group.parts[len(products) :]:
            operands = [numbers[number] for number in one.operands]
            results = CARRIED_OUT[one.code](one, self.dtype, inputs, *operands)
            numbers.update(zip(one.results, results, strict=True))


def last_uses(groups: Sequence[Group], answers: Sequence[int]) -> list[list[int]]:
    """For each group the results that nothing needs after it."""
    last = {n: i for i, group in enumerate(groups) for n in (*group.operands, *group.results)}
    over: list[list[int]] = [[] for _ in groups]
    for number, i in last.items():
        if number not in answers:
            over[i].append(number)
    return over


def multiplied(x: torch.Tensor, parts: Sequence[Slice]) -> list[torch.Tensor]:
    """The products of x (n, in) with parts of layers; neighbouring parts of a layer are one."""
    results: list[torch.Tensor] = []
    ends = [
        i
        for i, (one, other) in enumerate(pairwise(parts), 1)
        if one.layer is not other.layer or one.end != other.begin
    ]
    for first, after in pairwise([0, *ends, len(parts)]):
        run = parts[first:after]
        layer, begin, end = run[0].layer, run[0].begin, run[-1].end
        if end - begin == layer.out_features:
            y = layer(x)
        else:
            bias = None if layer.bias is None else layer.bias[begin:end]
            y = linear(x, layer.weight[begin:end], bias)
        results += y.split([part.end - part.begin for part in run], -1) if len(run) > 1 else [y]
    return results


Made = tuple[torch.Tensor, ...]


def embed(one: Instruction, dtype: torch.dtype, inputs: tuple) -> Made:
    table, *factor = one.weights
    rows = embedding(inputs[0], table)
    return (rows * factor[0] if factor else rows,)


def norm(one: Instruction, dtype: torch.dtype, inputs: tuple, x: torch.Tensor) -> Made:
    (weight,), (size, _), (eps,) = one.weights, one.integers, one.reals
    wide = x.reshape(-1, size).to(torch.float32)
    unit = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    y = weight * unit if one.how == "late" else weight * unit.to(dtype)
    return (y.to(dtype).view(x.shape),)


def angles(one: Instruction, dtype: torch.dtype, inputs: tuple) -> Made:
    (speed,) = one.weights
    turns = inputs[1][:, None].to(torch.float32) * speed
    waves = torch.cos(turns) * one.reals[0], torch.sin(turns) * one.reals[1]
    return tuple(y if one.how == "late" else y.to(dtype) for y in waves)


def rotate(
    one: Instruction,
    dtype: torch.dtype,
    inputs: tuple,
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> Made:
    heads, size = one.integers
    first, second = x.reshape(-1, heads, size).chunk(2, -1)
    cos, sin = cos[:, None], sin[:, None]
    turned = first * cos + -second * sin, second * cos + first * sin
    return (torch.cat(turned, -1).to(dtype).view(x.shape),)


def attend(
    one: Instruction,
    dtype: torch.dtype,
    inputs: tuple,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
) -> Made:
    (sinks,), (layer, heads, groups, size, wide) = one.weights, one.integers
    (scale, softcap), packing, n = one.reals, inputs[3], len(q)
    q, k, v = (
        x.reshape(1, n, count, each).transpose(1, 2)
        for x, count, each in (
            (q, heads, size),
            (k, heads // groups, size),
            (v, heads // groups, wide),
        )
    )
    return (attend_layer(q, k, v, packing, layer, scale, softcap, sinks).reshape(n, heads * wide),)


def gate(
    one: Instruction, dtype: torch.dtype, inputs: tuple, x: torch.Tensor, y: torch.Tensor
) -> Made:
    return (ACTIVATIONS[one.how](x) * y,)


def add(
    one: Instruction, dtype: torch.dtype, inputs: tuple, x: torch.Tensor, y: torch.Tensor
) -> Made:
    return (x + y,)


def select(one: Instruction, dtype: torch.dtype, inputs: tuple, x: torch.Tensor) -> Made:
    return (x[inputs[2]],)


def cap(one: Instruction, dtype: torch.dtype, inputs: tuple, x: torch.Tensor) -> Made:
    (most,) = one.reals
    return (torch.tanh(x / most) * most,)


CARRIED_OUT: dict[Code, Callable[..., Any]] = {
    Code.EMBED: embed,
    Code.NORM: norm,
    Code.ANGLES: angles,
    Code.ROTATE: rotate,
    Code.ATTEND: attend,
    Code.GATED: gate,
    Code.ADD: add,
    Code.SELECT: select,
    Code.CAP: cap,
}
