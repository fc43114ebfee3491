"""Made-up language models, functions from a path to logits, and situations to run a decoder in."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from decoders.warp import Warping

Path = tuple[int, ...]  # the tokens of a text, its prompt included
WHOLE = Warping()


@dataclass(frozen=True)
class Drawn:
    """Logits drawn from a normal distribution, different after every path, so no two texts tie.

    Attributes:
        V: vocabulary size
        seed: of the generator
        spread: standard deviation
    """

    V: int
    seed: int
    spread: float = 1.5

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(
            np.random.default_rng([self.seed, *path]).normal(0, self.spread, self.V)
        )


@dataclass(frozen=True)
class Rows:
    """Fixed probabilities.

    Attributes:
        rows: row i holds after a path of i + 1 tokens, the last row after every longer one
    """

    rows: tuple[tuple[float, ...], ...]

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(
            self.rows[min(len(path), len(self.rows)) - 1], dtype=torch.float64
        ).log()


@dataclass(frozen=True)
class Head:
    """A draft that reads the target's hidden states.

    The logits after a path differ for all states of the part that the target has seen, and for all
    tokens after that part.

    Attributes:
        V: vocabulary size
        seed: of the generator
        spread: standard deviation
    """

    V: int
    seed: int
    spread: float = 1.5

    def __call__(self, path: Path, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
        seen = [round(1e6 * abs(x)) for state in states for x in state.tolist()]
        key = [self.seed, len(seen), *seen, *path[len(states) :]]
        return torch.tensor(np.random.default_rng(key).normal(0, self.spread, self.V))


@dataclass(frozen=True)
class Situation:
    """The models and options that a decoder is run with; a failing test prints it, ready to paste.

    Attributes:
        target: logits after a path
        draft: a table, or a Head that reads the last layer
        budget: most new tokens
        warping: how logits become the distribution that is sampled
        end: ids that end the output
        prompt: the tokens of the prompt
        references: texts, as tokens, that drafts may copy from
        features: for each layer of the target, its hidden state at the end of a path
    """

    target: Callable[[Path], torch.Tensor]
    draft: Callable[[Path], torch.Tensor] | Head
    budget: int = 3
    warping: Warping = WHOLE
    end: frozenset[int] = frozenset()
    prompt: Path = (0,)
    references: tuple[Path, ...] = ()
    features: tuple[Callable[[Path], torch.Tensor], ...] = ()


def drawn(V: int = 3, seed: int = 0, **options: Any) -> Situation:
    return Situation(Drawn(V, 2 * seed), Drawn(V, 2 * seed + 1), **options)


@lru_cache(maxsize=100_000)
def logits(model: Callable[[Path], torch.Tensor], path: Path) -> torch.Tensor:
    return model(path)


@lru_cache(maxsize=100_000)
def drafted(situation: Situation, path: Path, seen: int) -> torch.Tensor:
    """The draft's logits after a path whose first `seen` tokens the target has seen."""
    if not isinstance(situation.draft, Head):
        return situation.draft(path)
    return situation.draft(path, tuple(situation.features[-1](path[: i + 1]) for i in range(seen)))
