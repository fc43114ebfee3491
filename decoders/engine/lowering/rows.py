"""The values of a pass that kernels compute (Rows), and where they lie (placed)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from decoders.engine.recorder import Size

TOKENS, WANTED = Size(1, 0, 0), Size(0, 1, 0)


@dataclass(frozen=True)
class Rows:
    """Float32 numbers of each token, one token after another.

    Attributes:
        number: the number of the result that holds them
        shape: their shape as torch sees it, with TOKENS or WANTED for the number of rows
    """

    number: int
    shape: tuple[Any, ...]

    @property
    def width(self) -> int:
        """How many numbers each token has."""
        return prod(size for size in self.shape if not isinstance(size, Size))

    @property
    def count(self) -> Size:
        return next(size for size in self.shape if isinstance(size, Size))

    @property
    def by_heads(self) -> bool:
        """Whether the shape is (1, heads, tokens, size); in memory, tokens come first."""
        return len(self.shape) == 4 and isinstance(self.shape[2], Size)

    def viewed(self, name: str, arguments: Sequence[Any]) -> "Rows | None":
        """The rows after an operator that moves no number; None if it does.

        Args:
            name: the operator's name
            arguments: its arguments after the rows
        """
        shape: tuple[Any, ...] | None = None
        if name in ("view", "reshape", "_unsafe_view") and not self.by_heads:
            shape = whole(arguments[0], self.width)
        elif name == "transpose" and [*map(int, arguments)] == [1, 2] and len(self.shape) == 4:
            shape = (self.shape[0], self.shape[2], self.shape[1], self.shape[3])
        elif name in ("alias", "detach", "contiguous", "clone") and not self.by_heads:
            shape = self.shape
        elif name == "select" and list(arguments) == [0, 0] and self.shape[0] == 1:
            shape = self.shape[1:]
        elif name == "slice" and self._all(*arguments):
            shape = self.shape
        if shape is None or [s for s in shape if isinstance(s, Size)] != [self.count]:
            return None
        # Only heads may stand before the tokens.
        fits = shape[: shape.index(self.count)] in ((), (1,)) or Rows(0, shape).by_heads
        return Rows(self.number, shape) if fits else None

    def _all(self, axis: int = 0, begin: Any = None, end: Any = None, step: int = 1) -> bool:
        size = self.shape[axis]
        last = size.rest if isinstance(size, Size) else size
        return (
            not begin and step == 1 and (end is None or (not isinstance(end, Size) and end >= last))
        ) and (not isinstance(size, Size) or end is None or end == 2**63 - 1)


def whole(shape: Sequence[Any], width: int) -> tuple[Any, ...]:
    """A shape without -1, given how many numbers each token has."""
    known = prod(size for size in shape if not isinstance(size, Size) and size != -1)
    return tuple(width // known if size == -1 else size for size in shape)


@dataclass
class Instruction:
    """An instruction whose operands are numbers of results.

    Attributes:
        code: see `decoders.engine.kernels.program.Code`
        operands: the results that it reads, up to three
        result: the one that it makes
        integers: its whole numbers
        reals: its real numbers
        second: a second result, or None
    """

    code: int
    operands: tuple[int, ...]
    result: int
    integers: tuple[int, ...] = ()
    reals: tuple[float, ...] = ()
    second: int | None = None

    @property
    def touched(self) -> tuple[int, ...]:
        more = () if self.second is None else (self.second,)
        return *self.operands, self.result, *more


@dataclass
class Layout:
    """Where results lie: a place for each, and the numbers that each token needs for all."""

    places: dict[int, int] = field(default_factory=dict)
    width: int = 0


def placed(
    instructions: Sequence[Instruction], widths: Sequence[int], answers: Sequence[int]
) -> Layout:
    """Give each result a place, which another takes after the last use.

    Args:
        instructions: the instructions
        widths: the numbers that each token has in each result
        answers: the results that a pass returns; they lie outside, at -1, -2, ..
    """
    layout = Layout({number: -1 - i for i, number in enumerate(answers)})
    last = {number: i for i, one in enumerate(instructions) for number in one.touched}
    free: dict[int, list[int]] = {}
    for i, one in enumerate(instructions):
        for number in one.touched:
            if number not in layout.places:
                width = widths[number]
                if free.get(width):
                    layout.places[number] = free[width].pop()
                else:
                    layout.places[number], layout.width = layout.width, layout.width + width
        for number in set(one.touched):
            if last[number] == i and number not in answers:
                free.setdefault(widths[number], []).append(layout.places[number])
    return layout
