"""Arenas between two runs (Idle)."""

from contextlib import suppress

import torch

from decoders.engine.memory.arenas import Arenas
from decoders.engine.memory.rows import CacheRows


class Idle:
    """Arenas that no request uses, kept for the next run. Runs may come from several threads.

    Args:
        most: the most bytes that all of them together may have, or None for no limit
    """

    def __init__(self, most: int | None):
        self.most, self._arenas = most, list[Arenas]()

    @property
    def arenas(self) -> tuple[Arenas, ...]:
        return tuple(self._arenas)

    def take(
        self, kind: type[CacheRows], dtype: torch.dtype, device: torch.device
    ) -> Arenas | None:
        """Take arenas with this kind of rows, of this dtype and on this device, if there are any.

        A model may have been moved since they were made.
        """
        for arenas in self.arenas:
            if (arenas.kind, arenas.dtype, arenas.device) == (kind, dtype, device):
                with suppress(ValueError):  # another thread was faster
                    self._arenas.remove(arenas)
                    return arenas
        return None

    def keep(self, arenas: Arenas) -> bool:
        """Keep arenas, if there is room; return whether they were kept."""
        if self.most is not None and sum(a.size for a in (*self.arenas, arenas)) > self.most:
            return False
        self._arenas.append(arenas)
        return True
