"""Targets and drafts of a few tokens with fractions for probabilities, the smallest ones first."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from decoders.testing.situations import Path

Row = tuple[Fraction, ...]
FIXED = 16  # most drafts of a shape with fixed rows
PARTS = range(2, 12)  # denominators of drawn rows
SCARCE = Fraction(1, 1000)


@dataclass(frozen=True)
class Table:
    """The probabilities of the next token after every text.

    Attributes:
        V: vocabulary size
        p: the target's row after a text
        q: the draft's row after a text
    """

    V: int
    p: Callable[[Path], Row]
    q: Callable[[Path], Row]


@dataclass(frozen=True)
class Everywhere:
    """The same row after every text."""

    row: Row

    def __call__(self, path: Path) -> Row:
        return self.row


@dataclass(frozen=True)
class Counted:
    """Rows drawn at random in equal parts, different after every text.

    Attributes:
        V: vocabulary size
        parts: number of parts
        seed: another one gives other rows
        scarce: the probability of one token, drawn too, beside which the parts are of the rest
    """

    V: int
    parts: int
    seed: int
    scarce: Fraction | None = None

    @lru_cache(maxsize=4096)  # noqa: B019 - of a value
    def __call__(self, path: Path) -> Row:
        draw = np.random.default_rng([self.seed, self.parts, len(path), *path])
        V = self.V - (self.scarce is not None)
        counts = draw.multinomial(self.parts, [1 / V] * V)
        row = [Fraction(int(count), self.parts) for count in counts]
        if self.scarce is not None:
            row = [(1 - self.scarce) * x for x in row]
            row.insert(int(draw.integers(self.V)), self.scarce)
        return tuple(row)


def tables(V: int, nodes: int) -> Iterator[Table]:
    """The tables to try for drafts of this many tokens, by rising denominators.

    First all pairs of simple rows that hold after every text, then drawn ones, whose rows depend on
    the text and have zeros in some places, and last those with a token of 1/1000 in p, q or both.
    """
    if V**nodes <= FIXED:
        rows = {
            tuple(Fraction(count, parts) for count in counts)
            for parts in range(1, 7 - V)
            for counts in itertools.product(range(parts + 1), repeat=V)
            if sum(counts) == parts
        }
        for p, q in sorted(itertools.product(sorted(rows), repeat=2), key=_size):
            yield Table(V, Everywhere(p), Everywhere(q))
    for parts in PARTS:
        yield Table(V, Counted(V, parts, 0), Counted(V, parts, 1))
    for of_p, of_q in ((None, SCARCE), (SCARCE, None), (SCARCE, SCARCE)) if V > 1 else ():
        for parts in PARTS[:3]:
            yield Table(V, Counted(V, parts, 0, of_p), Counted(V, parts, 1, of_q))


def _size(pair: tuple[Row, ...]) -> tuple[int, int]:
    """The largest denominator, then the number of zeros."""
    parts = pair[0] + pair[1]
    return max(x.denominator for x in parts), parts.count(Fraction(0))


def likely(table: Table, depth: int, known: dict[Path, float]) -> dict[Path, float]:
    """The law of texts of some length that begin as `known` says and go on as the target does.

    Args:
        table: the target
        depth: length of the texts
        known: from each shorter text to the chance that a decoder's round ends with it; {(): 1.0}
            gives the target's own law
    """
    law: dict[Path, float] = {}

    def go_on(path: Path, mass: float) -> None:
        mass += known.get(path, 0.0)
        if len(path) == depth:
            law[path] = mass
            return
        for token, p in enumerate(table.p(path)):
            go_on((*path, token), mass * float(p))

    go_on((), 0.0)
    return law


def most_accepted(table: Table, length: int) -> list[Fraction]:
    """The largest chance with which a lossless rule can accept the i-th token of a chain, i >= 1.

    The sum is the most draft tokens that it can accept in the mean. Block verification reaches it.

    Source:
        Sun et al. 2024, block verification (arXiv 2403.10444), which is optimal: its weights.
    """
    most = [Fraction(0)] * length

    def go_on(path: Path, chance: Fraction, weight: Fraction) -> None:
        if len(path) == length:
            return
        for token, (p, q) in enumerate(zip(table.p(path), table.q(path), strict=True)):
            if q:
                w = min(Fraction(1), weight * p / q)
                most[len(path)] += chance * q * w
                go_on((*path, token), chance * q, w)

    go_on((), Fraction(1), Fraction(1))
    return most
