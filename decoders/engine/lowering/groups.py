"""Instructions that one launch carries out (Group, grouped): some nine for each layer.

A launch reads its operand once for all its products, and what follows a product or a norm and is
needed nowhere else is done before numbers go back to memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from decoders.engine.kernels.codes import Code
from decoders.engine.lowering.lower import CannotLower, Instruction


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
