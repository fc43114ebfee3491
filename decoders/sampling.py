"""The source of all randomness of all decoders."""

import random
from collections.abc import Callable
from typing import Protocol

from decoders.distribution import Distribution


class RandomSource(Protocol):
    """The random operations of a decoder. Tests use a source that enumerates every outcome."""

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        """`count` ids, drawn independently with replacement."""

    def accept(self, probability: float) -> tuple[bool, float]:
        """Accept with a probability.

        Args:
            probability: the chance; above 1 counts as 1

        Returns:
            Whether it was accepted, and the uniform number u in [0, 1) that decided.
        """

    def chain(self, steps: int) -> Callable[[Distribution], int]:
        """A function that draws from one distribution after another, at most `steps` times.

        All random numbers are taken from the source now, even if fewer are needed, so that later
        draws do not depend on where a chain ends.
        """


class SeededSource:
    """Draws by inverting the cumulative distribution at uniform numbers of Python's generator.

    One seed gives the same draws on any device.

    Args:
        seed: any whole number; taken modulo 2**64
    """

    def __init__(self, seed: int):
        self.uniform = random.Random(seed % 2**64).random

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        return probs.draw([self.uniform() for _ in range(count)])

    def accept(self, probability: float) -> tuple[bool, float]:
        u = self.uniform()
        return u < probability, u

    def chain(self, steps: int) -> Callable[[Distribution], int]:
        uniforms = iter([self.uniform() for _ in range(steps)])
        return lambda probs: probs.draw([next(uniforms)])[0]
