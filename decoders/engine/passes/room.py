"""Room for what the kernels write of passes in advance: logits, and what is read of them (Room)."""

from typing import NamedTuple

import numpy as np

from decoders.scan import MANY, Found


class Room(NamedTuple):
    """The logits of one model's passes, and what is read of them while they are in the caches.

    Attributes:
        logits: (passes or rounds, rows of each, V)
        tops, ids: the largest of each row and their ids, (rows, n), see `Scan.likeliest`
        sums: the log of the sum of exp(logit - largest) of each row
    """

    logits: np.ndarray
    tops: np.ndarray
    ids: np.ndarray
    sums: np.ndarray

    @classmethod
    def of(cls, count: int, each: int, size: int, sought: int) -> "Room":
        """Room for passes or rounds.

        Args:
            count: their number
            each: rows of each
            size: V
            sought: how many of the largest of each row are looked for; above MANY, only the largest
                one is
        """
        rows, most = count * each, min(sought if sought <= MANY else 1, size)
        return cls(
            np.empty((count, each, size), np.float32),
            np.empty((rows, most), np.float32),
            np.empty((rows, most), np.int64),
            np.empty(rows),
        )

    def read(self, count: int) -> tuple[np.ndarray, Found]:
        """The logits of the first `count` passes or rounds, (rows, V), and what was read there."""
        _, each, size = self.logits.shape
        rows = count * each
        return self.logits[:count].reshape(rows, size), Found(
            self.tops[:rows], self.ids[:rows], {1.0: self.sums[:rows]}
        )
