"""The source of randomness of a request (RandomSource)."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
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
        self._generate = random.Random(seed % 2**64).random
        self._next = deque[float]()

    def uniform(self) -> float:
        """The next number."""
        return self.take(1)[0]

    def take(self, count: int) -> list[float]:
        """The next numbers."""
        following, generate = self._next, self._generate
        return [following.popleft() if following else generate() for _ in range(count)]

    def peek(self, count: int) -> list[float]:
        """The next numbers, which stay the next."""
        while len(self._next) < count:
            self._next.append(self._generate())
        return list(islice(self._next, count))

    def draw(self, probs: Distribution, count: int = 1) -> list[int]:
        return probs.draw(self.take(count))

    def accept(self, probability: float) -> tuple[bool, float]:
        u = self.uniform()
        return u < probability, u

    def chain(self, steps: int) -> "Uniforms":
        return Uniforms(self.take(steps))

    def __call__(self, probs: Distribution) -> int:
        return self.draw(probs)[0]


class Uniforms:
    """Draws with the given uniform numbers in turn."""

    def __init__(self, numbers: Sequence[float]):
        self._left = deque(numbers)

    def take(self, count: int) -> list[float]:
        """The next numbers."""
        return [self._left.popleft() for _ in range(count)]

    def peek(self, count: int) -> list[float]:
        """The next numbers, which stay the next."""
        return list(islice(self._left, count))

    def __call__(self, probs: Distribution) -> int:
        return probs.draw(self.take(1))[0]


def one_by_one(source: RandomSource) -> Callable[[Distribution], int]:
    """Draws with the number that is then the source's next."""
    return source if isinstance(source, SeededSource) else lambda probs: source.draw(probs)[0]
