"""Where all randomness of all decoders comes from."""

import random
from collections.abc import Callable
from typing import Protocol

from decoders.distribution import Distribution


class RandomSource(Protocol):
    """What a decoder may do at random. Tests use a source that enumerates every outcome."""

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        """`count` ids, drawn independently with replacement."""

    def accept(self, probability: float) -> tuple[bool, float]:
        """True with this probability (above 1 counts as 1), and the uniform number u in [0, 1) that decided."""

    def chain(self, steps: int) -> Callable[[Distribution], int]:
        """A function that draws from one distribution after another, at most `steps` of them. What it takes from the source is taken
        now, however many it will draw: so later draws do not depend on where a chain ends."""


class SeededSource:
    """Draws by inverting the cumulative distribution at uniform numbers of Python's generator: one seed gives the same draws on any device."""

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
