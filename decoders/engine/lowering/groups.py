"""Instructions that one launch carries out (Group), some nine for each layer.

A launch reads its operand once for all its products, and what follows a product or a norm and is
needed nowhere else is done before numbers go back to memory. What has no kernel is carried out by
operators of torch (by_torch).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

import torch
from torch.nn.functional import embedding, gelu, silu

from decoders.engine.kernels import Code
from decoders.engine.lowering.lower import Instruction


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
            if first and second and first is not second and kind_of(first) == kind_of(second):
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
            key = kind_of(one)
        if one.code == Code.ROTATE:
            # Those of the queries and of the keys of one attention.
            key = one.code, one.operands[1:], users[one.result][0].result
        alike[key].append(one)
    for ones in alike.values():
        join(*ones)
    return in_order([Group(tuple(g)) for g in {id(g): g for g in group_of.values()}.values()])


def kind_of(product: Instruction) -> tuple:
    """What products of one launch have in common."""
    return product.operands, product.weights[0].layer.bias is None


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Groups in an order in which each finds its operands."""
    makers = {number: i for i, group in enumerate(groups) for number in group.results}
    needs = {
        i: {makers[number] for number in group.operands if number in makers}
        for i, group in enumerate(groups)
    }
    return [groups[i] for i in TopologicalSorter(needs).static_order()]


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
}


def last_uses(groups: Sequence[Group], answers: Sequence[int]) -> list[list[int]]:
    """For each group the results that nothing needs after it."""
    last = {n: i for i, group in enumerate(groups) for n in (*group.operands, *group.results)}
    over: list[list[int]] = [[] for _ in groups]
    for number, i in last.items():
        if number not in answers:
            over[i].append(number)
    return over


def by_torch(
    one: Instruction, dtype: torch.dtype, inputs: tuple, operands: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """The results of an instruction that has no kernel.

    Args:
        one: the instruction
        dtype: of the model
        inputs: token ids and positions, (tokens,), and the tokens that want logits, (wanted,)
        operands: its operands
    """
    ids, positions, wanted = inputs
    if one.code == Code.EMBED:
        table, factor = one.weights
        rows = embedding(ids, table)
        return (rows if factor is None else rows * factor,)
    if one.code == Code.ANGLES:
        (speed,) = one.weights
        turns = positions[:, None].to(torch.float32) * speed
        waves = torch.cos(turns) * one.reals[0], torch.sin(turns) * one.reals[1]
        return tuple(y if one.how == "late" else y.to(dtype) for y in waves)
    x, y = operands[0], operands[-1]
    if one.code == Code.GATED:
        return (ACTIVATIONS[one.how](x) * y,)
    if one.code == Code.ADD:
        return (x + y,)
    if one.code == Code.SELECT:
        return (x[wanted],)
    (most,) = one.reals
    return (torch.tanh(x / most) * most,)  # CAP
