"""Draws of a server at the places that they visited, and the tests of them (Draws)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.engines.canary.cells import Tally, combined, p_value, tally

# The chance that a server that keeps the law is called unlike it.
LEVEL = 1e-3
# The total variation of the wrong rules that the control makes up.
SOUGHT = 0.1
# The tokens that a control makes up at once; those of all repetitions may not fit into memory.
AT_ONCE = 2**18


# The chances of all cells under a wrong rule, (N, cells), and its total variation from the law at
# each place, (N,).
Other = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, eq=False)
class Draws:
    """Tokens that a server drew.

    Attributes:
        position: the place of each token in its text, from 0, (N,)
        cells: its cell, (..., N)
        chances: the chances of all cells there under the law, (N, cells)
        starts: the counts of first tokens after each prefix; empty for draws that are made up
        others: by their names, laws of wrong rules
    """

    position: np.ndarray
    cells: np.ndarray
    chances: np.ndarray
    starts: tuple[Tally, ...]
    others: Mapping[str, Other]


def joined(pieces: Sequence[Draws]) -> Draws:
    """The draws of all pieces, which have the same wrong rules."""

    def one(parts: Iterable[np.ndarray]) -> np.ndarray:
        return np.concatenate(list(parts))

    return Draws(
        one(piece.position for piece in pieces),
        one(piece.cells for piece in pieces),
        one(piece.chances for piece in pieces),
        tuple(start for piece in pieces for start in piece.starts),
        {
            name: (
                one(piece.others[name][0] for piece in pieces),
                one(piece.others[name][1] for piece in pieces),
            )
            for name in pieces[0].others
        },
    )


@dataclass(frozen=True)
class Check:
    """One test of the draws.

    Attributes:
        name: what is tested
        tokens: drawn tokens in it
        statistic: chi-square
        degrees: its degrees of freedom
        p: the chance of so large a statistic under the law, times the number of tests
    """

    name: str
    tokens: int
    statistic: float
    degrees: int
    p: float


def _tests(draws: Draws) -> Iterator[tuple[str, int, np.ndarray, int]]:
    """Each test's name, its tokens, the statistic of each repetition, and degrees of freedom."""
    if draws.starts:
        count = int((draws.position == 0).sum())
        yield "first token, after each prefix", count, *combined(draws.starts)
    last = int(draws.position.max(initial=-1))
    for position in range(last + 1):
        at = draws.position == position
        found = tally(draws.cells[..., at], draws.chances[at])
        yield f"token {position + 1}", int(at.sum()), *found.statistic()
    if last > 1:
        at = draws.position > 0
        found = tally(draws.cells[..., at], draws.chances[at])
        yield f"tokens 2 to {last + 1} together", int(at.sum()), *found.statistic()


def checks(draws: Draws) -> list[Check]:
    """All tests; the draws are unlike the law if any p is below LEVEL (Bonferroni)."""
    found = list(_tests(draws))
    return [
        Check(name, tokens, float(x), degrees, min(1.0, len(found) * float(p_value(x, degrees))))
        for name, tokens, x, degrees in found
    ]


def unlike(draws: Draws) -> np.ndarray:
    """Whether each repetition is unlike the law, (...)."""
    found = list(_tests(draws))
    return np.any([len(found) * p_value(x, degrees) < LEVEL for *_, x, degrees in found], axis=0)


@dataclass(frozen=True)
class WrongRule:
    """A negative control: made-up draws of a wrong rule at the same places.

    Attributes:
        name: what the rule does
        variation: its mean total variation from the law, over the tokens that it writes
        caught: how often the tests found it
        times: how often it was tried
    """

    name: str
    variation: float
    caught: int
    times: int


def controls(draws: Draws, seed: int, times: int = 100) -> list[WrongRule]:
    """Whether these tests, with as many draws, find rules that are off by SOUGHT.

    The first tokens are right, as those of a speculative server are, which come from the pass over
    the prompt. After them the law is mixed with a wrong one.

    Args:
        draws: the draws, for their places
        seed: of the made-up draws
        times: repetitions of each
    """
    source, later, found = np.random.default_rng(seed), draws.position > 0, []
    if not later.any():
        later = draws.position == 0
    for name, (other, distance) in draws.others.items():
        off = float(distance[later].mean())
        share = min(1.0, SOUGHT / off) if off else 0.0
        chances = np.where(
            later[:, None], (1 - share) * draws.chances + share * other, draws.chances
        )
        caught = sum(
            int(unlike(Draws(draws.position, cells, draws.chances, (), {})).sum())
            for cells in sampled(chances, times, source)
        )
        found.append(WrongRule(name, share * off, caught, times))
    return found


def sampled(chances: np.ndarray, times: int, source: np.random.Generator) -> Iterator[np.ndarray]:
    """Cells drawn at each place, (some, places), until there are so many of each."""
    some = max(1, AT_ONCE // max(1, len(chances)))
    upper = chances.cumsum(axis=1)
    upper /= upper[:, -1:]
    for begin in range(0, times, some):
        uniform = source.random((min(some, times - begin), len(chances)))
        yield (uniform[..., None] >= upper[:, :-1]).sum(axis=-1)
