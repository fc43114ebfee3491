"""Made-up language models, functions from a path to the logits behind it, and what a decoder is run on."""

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
    """Logits drawn from a normal distribution, different behind every path: so no two texts are equally likely."""

    V: int
    seed: int
    spread: float = 1.5

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(np.random.default_rng([self.seed, *path]).normal(0, self.spread, self.V))


@dataclass(frozen=True)
class Rows:
    """Given probabilities: row i behind a path of i + 1 tokens, the last row behind every longer one."""

    rows: tuple[tuple[float, ...], ...]

    def __call__(self, path: Path) -> torch.Tensor:
        return torch.tensor(self.rows[min(len(path), len(self.rows)) - 1], dtype=torch.float64).log()


@dataclass(frozen=True)
class Situation:
    """What a decoder is run on; a failing test prints it so that it can be pasted."""

    target: Callable[[Path], torch.Tensor]
    draft: Callable[[Path], torch.Tensor]
    budget: int = 3
    warping: Warping = WHOLE
    end: frozenset[int] = frozenset()
    prompt: Path = (0,)
    references: tuple[Path, ...] = ()


def drawn(V: int = 3, seed: int = 0, **options: Any) -> Situation:
    return Situation(Drawn(V, 2 * seed), Drawn(V, 2 * seed + 1), **options)


@lru_cache(maxsize=100_000)
def logits(model: Callable[[Path], torch.Tensor], path: Path) -> torch.Tensor:
    return model(path)
