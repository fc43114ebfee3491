"""Runs a bare function that verifies drafts, in every way it can go on one table."""

import inspect
import math
import operator
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from decoders.distribution import Distribution, Small, Whole
from decoders.drafts import Sampler, with_replacement, without_replacement
from decoders.errors import InputError, first_line, quoted
from decoders.randomness import RandomSource
from decoders.shapes import Probs, TokenId
from decoders.testing.oracle import Source, outcomes
from decoders.testing.situations import Path
from decoders.testing.tables import Table

Shape = tuple[int, ...]  # children of every draw, layer by layer; (1, 1) is a chain of two
CHAIN, TREE = ("p", "q", "tokens", "source"), ("p", "q", "tokens", "parents", "source")


def likeliest(source: RandomSource, q: Distribution, count: int) -> list[TokenId]:
    """Children that are chosen, not drawn: the tokens of largest q."""
    return sorted((x for x, _ in q.items()), key=lambda x: -q[x])[:count]


# How the children of a node can come from q.
CHILDREN: dict[str, Sampler] = {
    "with-replacement": with_replacement,
    "without-replacement": without_replacement,
    "likeliest": likeliest,
}


def hidden(how: str = "") -> InputError:
    """The error for a function whose law cannot be enumerated."""
    return InputError(
        f"The function draws from elsewhere than `source`{how}, so nothing is said of its law: "
        "take every random choice from source.accept(probability) or source.draw(weights)."
    )


class Chance:
    """All the randomness of a function under proof."""

    def __init__(self, source: Source):
        self._source = source

    def accept(self, probability: Any) -> bool:
        """Whether an event of this probability happens; it is cut to the range from 0 to 1."""
        chance = float(probability)
        if math.isnan(chance):
            raise ValueError("source.accept was given a probability that is not a number")
        return self._source.accept(max(0.0, chance))[0]

    def draw(self, weights: Any) -> TokenId:
        """An id; the weights are its chances, and need not sum to one."""
        masses = [float(weight) for weight in weights]
        total = sum(masses)
        if not (0 < total < math.inf and min(masses) >= 0):
            raise ValueError(f"source.draw was given {masses}, which is no distribution")
        return self._source.draw(Small({x: m / total for x, m in enumerate(masses) if m}))[0]


class Told(Source):
    """A source that notices if the outcome that it is told to take is not there."""

    def branch(self, outcomes: list[tuple[Any, float]]) -> Any:
        try:
            return super().branch(outcomes)
        except IndexError:
            raise hidden() from None


@dataclass(frozen=True)
class Draft:
    """Drawn tokens.

    Attributes:
        tokens: their ids, layer by layer
        parents: of each the row of its parent; 0 is the root, i + 1 belongs to token i
        paths: of each row the text from the root to it
    """

    tokens: list[TokenId]
    parents: list[int]
    paths: list[Path]


def is_chain(verify: Callable) -> bool:
    """Whether the function takes chains; InputError if it takes neither chains nor trees."""
    try:
        names = [
            name
            for name, each in inspect.signature(verify).parameters.items()
            if each.default is each.empty
            and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        names = []
    if len(names) not in (len(CHAIN), len(TREE)):
        raise InputError(
            f"A function to prove is called as verify({', '.join(CHAIN)}) for chains or "
            f"verify({', '.join(TREE)}) for trees, not as {quoted(', '.join(names))}."
        )
    return len(names) == len(CHAIN)


def generators() -> dict[str, Any]:
    """The states of the generators that every module of a process shares."""
    mersenne = np.random.get_state(legacy=False)["state"]
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": (mersenne["key"].tobytes(), mersenne["pos"]),
        "random": random.getstate(),
    }


@dataclass(frozen=True)
class Trial:
    """A function on one table.

    Attributes:
        verify: the function
        table: the target and the draft
        shape: the shape of its drafts
        sample: how the children of one node are drawn
        chain: whether it takes chains
    """

    verify: Callable[..., tuple[int, int]]
    table: Table
    shape: Shape
    sample: Sampler
    chain: bool

    def law(self, limit: int) -> tuple[dict[Path, float], int]:
        """From what a round adds to a text to its probability, and the number of ways.

        Raises:
            InputError: if the function fails, returns something else, or draws elsewhere
            TooManyWays: for more than `limit` ways
        """
        law: dict[Path, float] = defaultdict(float)
        ways = 0
        try:
            for chance, text in outcomes(self._twice, source=Told, limit=limit):
                law[text] += chance
                ways += 1
        except AssertionError:  # the ways do not sum to one
            raise hidden() from None
        return law, ways

    def _twice(self, source: Source) -> Path:
        """What a round adds; the same choices must give the same again."""
        before = generators()
        text, again = self._round(source), Told(tuple(source.taken))
        moved = [name for name, state in generators().items() if state != before[name]]
        if moved:
            raise hidden(f" (the generator of {moved[0]} moved)")
        if (self._round(again), again.taken, again.probability) != (
            text,
            source.taken,
            source.probability,
        ):
            raise hidden(" (the same choices gave two results)")
        return text

    def _round(self, source: Source) -> Path:
        draft = self._draft(source)
        p, q = (_rows(row, draft.paths) for row in (self.table.p, self.table.q))
        given = [p, q[: len(draft.tokens)], draft.tokens[:]]
        if not self.chain:
            given[1:] = [q, draft.tokens[:], draft.parents[:]]
        try:
            kept, token = map(operator.index, self.verify(*given, Chance(source)))
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            # Any failure of a caller's function: the numbers show it again.
            raise InputError(
                f"The function failed with p = {p.tolist()}, q = {q.tolist()}, tokens = "
                f"{draft.tokens}: {type(error).__name__}: {first_line(error)}"
            ) from error
        if not (0 <= kept <= len(draft.tokens) and 0 <= token < self.table.V):
            raise InputError(
                f"The function returned {kept}, {token}; it must return how many of "
                f"{len(draft.tokens)} tokens it keeps (of a tree: the last row that it keeps) and "
                f"an id below {self.table.V}."
            )
        return (*draft.paths[kept], token)

    def _draft(self, source: Source) -> Draft:
        draft, layer = Draft([], [], [()]), [0]
        for children in self.shape:
            grown = len(draft.paths)
            for row in layer:
                q = Whole(_rows(self.table.q, [draft.paths[row]])[0])
                for token in self.sample(source, q, children):
                    draft.tokens.append(token)
                    draft.parents.append(row)
                    draft.paths.append((*draft.paths[row], token))
            layer = list(range(grown, len(draft.paths)))
        return draft


def _rows(model: Callable[[Path], Sequence], paths: Sequence[Path]) -> Probs:
    return torch.tensor([[float(x) for x in model(path)] for path in paths], dtype=torch.float64)
