"""Draws counted in cells of first tokens, and their distance from an exact law.

The distance is compared with that of exact samplers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

# The least share of all texts in a cell: with at most twenty cells, a fault shows after some
# thousand draws.
LEAST = 0.05
# The least share of all texts that begin with a prefix whose probability is read from the target.
KNOWN = 0.005
DEPTH = 3  # tokens of a text that are compared
SIMULATED = 2000  # exact samplers whose distance from the law is simulated
MOST = 0.95  # of them are below the distance that is shown as the most

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Cells:
    """A partition of all texts by their first tokens.

    Attributes:
        numbers: for each prefix of the tree, the cell of the texts that begin with it and with none
            of the longer prefixes
        chances: the exact probability of each cell; they sum to 1. The last cell, of probability 0,
            holds the texts that the law rules out
        outside: the prefixes of which the law rules out all texts
    """

    numbers: Mapping[Tokens, int]
    chances: tuple[float, ...]
    outside: frozenset[Tokens] = frozenset()

    def counts(self, texts: Iterable[Tokens]) -> list[int]:
        """The number of the texts in each cell."""
        counts = [0] * len(self.chances)
        for text in texts:
            counts[-1 if self.never(text) else self._number(text)] += 1
        return counts

    def never(self, text: Tokens) -> Tokens:
        """The beginning of a text that the law rules out; () if the law allows the text."""
        prefixes = (text[: length + 1] for length in range(len(text)))
        return next((prefix for prefix in prefixes if prefix in self.outside), ())

    def _number(self, text: Tokens) -> int:
        prefix: Tokens = ()
        while len(prefix) < len(text) and text[: len(prefix) + 1] in self.numbers:
            prefix = text[: len(prefix) + 1]
        return self.numbers[prefix]


def cells(law: Mapping[Tokens, float]) -> Cells:
    """Group the texts of a law into cells that hold LEAST of all texts each.

    The cells depend on the law alone, never on the draws: draws that are added later fall into the
    same cells. Texts that share a prefix, and continue with none of the longer ones, stay together;
    where they are fewer than LEAST, the next likeliest prefix joins them. Prefixes of probability 0
    belong to the last cell.

    Args:
        law: the probabilities of prefixes
    """
    rest: dict[Tokens, float] = {(): 1.0}
    for prefix, p in sorted(law.items(), key=lambda each: len(each[0])):
        if p and prefix and prefix[:-1] in rest:
            rest[prefix] = p
            rest[prefix[:-1]] -= p
    groups: list[list[Tokens]] = []
    chances: list[float] = []
    for prefix in sorted(rest, key=rest.__getitem__, reverse=True):
        if not chances or chances[-1] >= LEAST:
            groups.append([])
            chances.append(0.0)
        groups[-1].append(prefix)
        chances[-1] += max(0.0, rest[prefix])
    if len(chances) > 1 and chances[-1] < LEAST:
        groups[-2:], chances[-2:] = [groups[-2] + groups[-1]], [chances[-2] + chances[-1]]
    total = sum(chances) or 1.0
    numbers = {prefix: i for i, group in enumerate(groups) for prefix in group}
    return Cells(
        numbers, (*(p / total for p in chances), 0.0), frozenset(x for x, p in law.items() if not p)
    )


def variation(counts: Sequence[int], chances: Sequence[float]) -> float:
    """The total variation between the shares of the counts and the chances."""
    draws = sum(counts)
    return sum(abs(count / draws - p) for count, p in zip(counts, chances, strict=True)) / 2


# Several parts of a page ask for the same draws.
@lru_cache(maxsize=64)
def of_exact_samplers(draws: int, chances: tuple[float, ...], seed: int = 0) -> np.ndarray:
    """The total variations of SIMULATED exact samplers.

    Args:
        draws: draws of each sampler
        chances: the probability of each cell
        seed: seed of the simulation

    Returns:
        (SIMULATED,)
    """
    counts = np.random.default_rng(seed).multinomial(draws, chances, size=SIMULATED)
    return np.abs(counts / draws - np.asarray(chances)).sum(axis=1) / 2
