"""The contents of a layer's cache (Layout), and how far back its tokens see (Reach).

How far they see is found from the rule of the layer's mask.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from decoders.errors import NotPackedError


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a token sees. None in place of a Reach stands for everything.

    Attributes:
        size: tokens of a sliding window, which ends with the token itself, or of a chunk
        chunked: whether a token sees from the last multiple of `size` on, instead of a window
    """

    size: int
    chunked: bool = False

    def first(self, depth: Any) -> Any:
        """The least depth that a token sees.

        Args:
            depth: the token's depth, or an array of depths
        """
        return (
            depth // self.size * self.size
            if self.chunked
            else np.maximum(depth - (self.size - 1), 0)
        )

    @property
    def window(self) -> int:
        """The size of a sliding window, else 0; attention hides the rows of a chain beyond it."""
        return 0 if self.chunked else self.size


@dataclass(frozen=True, slots=True)
class Layout:
    """The contents of a layer's cache.

    Attributes:
        sizes: (K, D of keys, D of values)
        reach: how far back the layer sees; None for everything
        owner: the number of the layer whose keys and values it uses, usually its own
        device: where the layer is
    """

    sizes: tuple[int, int, int]
    reach: Reach | None
    owner: int
    device: torch.device

    @property
    def row_size(self) -> int:
        """The numbers in a row."""
        heads, k, v = self.sizes
        return heads * (k + v)


def reach_of(rule: Callable, size: int, device: torch.device) -> Reach | None:
    """Find how far back tokens see.

    Args:
        rule: the rule of a mask, (batch, head, query, keys) -> bool
        size: the number of tokens of a text
        device: where the rule is computed

    Raises:
        NotPackedError: if they see neither everything, nor a window, nor chunks
    """
    keys = torch.arange(size, device=device)

    # The number of tokens that see the first one.
    lasting = int(torch.as_tensor(rule(0, 0, keys, keys[0])).expand(size).sum())
    reaches: list[Reach | None] = [None] if lasting >= size else []
    if 0 < lasting < size:
        reaches = [Reach(lasting), Reach(lasting, chunked=True)]
    around = [n * lasting + i for n in (1, 2, 3) for i in (-2, -1, 0, 1)]
    places = {
        q for q in (0, 1, size // 2, size // 2 + 1, size - 2, size - 1, *around) if 0 <= q < size
    }
    for query in sorted(places):
        row = torch.as_tensor(rule(0, 0, keys[query], keys)).expand(size)
        if row[query + 1 :].any():
            raise NotPackedError("its attention looks ahead")
        reaches = [
            r
            for r in reaches
            if torch.equal(row, (keys <= query) & (keys >= (int(r.first(query)) if r else 0)))
        ]
    if not reaches:
        raise NotPackedError("its mask hides tokens in a way that the packed cache does not model")
    return reaches[0]
