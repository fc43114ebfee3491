"""How far back the tokens of a layer see (Reach), found out from the rule of its mask."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from decoders.errors import NotPackedError


@dataclass(frozen=True, slots=True)
class Reach:
    """A sliding window of `size` tokens, each its own last; or `chunked`, from the last multiple of `size` on. None in its place: all."""

    size: int
    chunked: bool = False

    def first(self, depth: Any) -> Any:
        """The least depth that a token of this depth sees; of numbers or arrays."""
        return depth // self.size * self.size if self.chunked else np.maximum(depth - (self.size - 1), 0)

    @property
    def window(self) -> int:
        """Of a sliding window its size, else 0: what attention is told to hide of chains."""
        return 0 if self.chunked else self.size


def reach_of(rule: Callable, size: int, device: torch.device) -> Reach | None:
    """What tokens see by a mask's rule, (batch, head, query, keys) -> bool, in texts of `size` tokens.

    Raises NotPackedError for what is neither all before, nor a window, nor chunks.
    """
    keys = torch.arange(size, device=device)

    def seen(query: int) -> torch.Tensor:
        return torch.as_tensor(rule(0, 0, keys[query], keys)).expand(size)

    lasting = int(torch.as_tensor(rule(0, 0, keys, keys[0])).expand(size).sum())  # so many tokens see the first
    found: list[Reach | None] = []
    found += [None] if lasting >= size else [Reach(lasting), Reach(lasting, chunked=True)] if lasting else []
    around = [n * lasting + i for n in (1, 2, 3) for i in (-2, -1, 0, 1)]
    places = {q for q in (0, 1, size // 2, size // 2 + 1, size - 2, size - 1, *around) if 0 <= q < size}
    for query in sorted(places):
        row = seen(query)
        if row[query + 1 :].any():
            raise NotPackedError("its attention looks ahead")
        found = [r for r in found if torch.equal(row, (keys <= query) & (keys >= (int(r.first(query)) if r else 0)))]
    if not found:
        raise NotPackedError("its mask hides tokens in a way that the packed cache does not model")
    return found[0]
