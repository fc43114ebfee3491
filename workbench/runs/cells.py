"""Draws counted against an exact law: cells of likely first tokens, Pearson's test, Holm's correction, total variation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

LEAST = 5.0  # draws that a cell is expected to hold at least (Cochran 1954)
DEPTH = 3  # tokens of a text that are compared
SIMULATED = 2000  # exact samplers, to know how far off they are
MOST = 0.95  # of them are no further off

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Cells:
    """A partition of all texts by their first tokens.

    numbers   for each prefix of the tree the cell of the texts that begin with it and with none of the longer ones
    chances   the exact probability of each cell; they sum to 1
    """

    numbers: Mapping[Tokens, int]
    chances: tuple[float, ...]

    def counts(self, texts: Iterable[Tokens]) -> list[int]:
        """How many of the texts lie in each cell."""
        found = [0] * len(self.chances)
        for text in texts:
            prefix: Tokens = ()
            while len(prefix) < len(text) and text[: len(prefix) + 1] in self.numbers:
                prefix = text[: len(prefix) + 1]
            found[self.numbers[prefix]] += 1
        return found


def cells(law: Mapping[Tokens, float], draws: int) -> Cells:
    """Cells that so many draws are expected to fill with LEAST draws each; they depend on the law alone, never on what was drawn.

    law   the probabilities of prefixes; those expected less than LEAST times are left out
    A prefix has a cell for what follows it beside the longer prefixes. Cells with fewer expected draws are one; if that is still too
    small, it joins the smallest.
    """
    rest: dict[Tokens, float] = {(): 1.0}
    for prefix, p in sorted(law.items(), key=lambda each: len(each[0])):
        if draws * p >= LEAST and prefix and prefix[:-1] in rest:
            rest[prefix] = p
            rest[prefix[:-1]] -= p
    large = sorted((x for x, p in rest.items() if draws * p >= LEAST), key=rest.__getitem__)
    small = [x for x in rest if draws * rest[x] < LEAST]
    chances = [rest[x] for x in large]
    numbers = {x: i for i, x in enumerate(large)}
    pooled = sum(max(0.0, rest[x]) for x in small)
    if draws * pooled >= LEAST or not chances:
        chances.append(pooled)
        numbers |= dict.fromkeys(small, len(chances) - 1)
    else:
        chances[0] += pooled
        numbers |= dict.fromkeys(small, 0)
    total = sum(chances) or 1.0
    return Cells(numbers, tuple(p / total for p in chances))


def p_value(counts: Sequence[int], chances: Sequence[float]) -> float | None:
    """How likely draws from these chances lie at least as far from them as the counts do: Pearson's chi-square (1900) with one degree of
    freedom less than there are cells; None for a single cell, and for no draws."""
    draws = sum(counts)
    if len(chances) < 2 or not draws:
        return None
    distance = sum((count - draws * p) ** 2 / (draws * p) for count, p in zip(counts, chances, strict=True))
    half = torch.tensor([(len(chances) - 1) / 2, distance / 2], dtype=torch.float64)
    return torch.special.gammaincc(half[0], half[1]).item()


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Each p value corrected for there being several (Holm 1979): the chance that any of so many true laws looks so far off."""
    found = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected, highest = list(p_values), 0.0
    for rank, (p, i) in enumerate(found):
        corrected[i] = highest = max(highest, min(1.0, (len(found) - rank) * p))
    return corrected


def variation(counts: Sequence[int], chances: Sequence[float]) -> float:
    """Total variation between the shares of the counts and the chances."""
    draws = sum(counts)
    return sum(abs(count / draws - p) for count, p in zip(counts, chances, strict=True)) / 2


def of_exact_sampler(draws: int, chances: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The total variation of as many draws from the chances themselves: its mean, and what MOST exact samplers stay below."""
    counts = np.random.default_rng(seed).multinomial(draws, chances, size=SIMULATED)
    found = np.abs(counts / draws - np.asarray(chances)).sum(axis=1) / 2
    return float(found.mean()), float(np.quantile(found, MOST))
