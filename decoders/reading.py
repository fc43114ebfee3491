"""Readings: what a pass says of the token that follows a node, brought to the host in one transfer for the whole pass."""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import overload

import numpy as np
import torch

from decoders.distribution import Distribution, Small, Whole, point_mass
from decoders.shapes import Logits, TokenId
from decoders.warp import Warping, top, warp

NUCLEUS = 64  # how many of the likeliest tokens are read if only top-p limits them
MOST = 256  # a larger top-k takes whole distributions: as many numbers are slower one by one than in a tensor


def held(warping: Warping) -> int:
    """How many of the likeliest tokens a small distribution needs."""
    if warping.temperature == 0:
        return 1
    if warping.top_k > 0:
        return warping.top_k if warping.top_k <= MOST else 1
    return NUCLEUS if warping.top_p < 1 else 1


def small(
    ids: Sequence[int], logits: Sequence[float], size: int, excess: Callable[[float], float], warping: Warping
) -> Small | None:
    """The warped distribution over `size` ids, of which the likeliest are given, or None if these do not hold all of it.

    ids, logits   in falling order of the logits, the lower id first of equals
    excess        for a temperature t the log of the sum, over all ids, of exp((logit - highest) / t)
    """
    if not ids or warping.temperature == 0:
        return point_mass(ids[0]) if ids else None
    k = min(int(warping.top_k), size) or size
    if len(ids) < k and (k < size or warping.top_p == 1):
        return None
    highest, temperature = logits[0], max(warping.temperature, sys.float_info.min)
    weights = [math.exp((x - highest) / temperature) for x in logits[:k]]
    if warping.top_p < 1:
        total = sum(weights) if len(weights) == k else math.exp(excess(temperature))
        # A token stays while the mass of likelier ones is below top_p.
        kept = bisect_left(list(accumulate(weights)), warping.top_p * total) + 1
        if kept > len(weights) < k:
            return None
        del weights[kept:]
    mass = sum(weights)
    return Small({x: w / mass for x, w in sorted(zip(ids, weights, strict=False)) if w > 0})


class Readings(Sequence["Reading"]):
    """Those of all rows of a pass.

    rows         the raw logits (n, V), where the model is
    likeliest    how many of the likeliest tokens are read at once; more are fetched when they are needed
    temperature  the one that distributions are warped with
    every        whether all rows will be warped, as those of a draft are; of the target's the rules look at few
    """

    def __init__(self, rows: Logits, likeliest: int, temperature: float = 1.0, every: bool = False):
        self.rows, (self._length, self.size) = rows, rows.shape
        self.held = min(likeliest, self.size)
        self.every = every
        self.host: np.ndarray | None = None
        self.excesses: dict[float, np.ndarray] = {}
        if rows.device.type == "cpu":
            self.host = rows.numpy()
            first = self.host.argmax(-1)  # of equals
            self.first, self.highest = first.tolist(), self.host[np.arange(len(first)), first].tolist()
            self.found = [x.tolist() for x in self._top(rows)] if every and self.held > 1 else None
            return
        values, ids = self._top(rows)
        temperatures = [1.0] if temperature in (0, 1) else [1.0, temperature]
        over, tiny = rows - values[:, :1], torch.finfo(rows.dtype).tiny
        columns = [values, ids, *((over / max(t, tiny)).logsumexp(-1, keepdim=True) for t in temperatures)]
        # Float64 holds every logit and every id: one transfer.
        together = torch.cat([x.double() for x in columns], -1).cpu().numpy()
        size = values.shape[-1]
        self.values, self.ids = together[:, :size], together[:, size : 2 * size].astype(np.int64)
        self.excesses = {t: together[:, 2 * size + i] for i, t in enumerate(temperatures)}
        self.highest = self.values[:, 0].tolist()

    def _top(self, rows: Logits) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and ids of the likeliest in each row, and of one more, which shows whether the last one has an equal."""
        return rows.topk(min(self.held + 1, self.size))

    def likeliest(self, place: int) -> tuple[list[float], list[TokenId]]:
        """The same for one row, on the host."""
        if self.held == 1 and self.host is not None:
            return [self.highest[place]], [self.first[place]]
        if self.host is None:
            return self.values[place].tolist(), self.ids[place].tolist()
        if self.found is not None:
            return self.found[0][place], self.found[1][place]
        values, ids = self._top(self.rows[place])
        return values.tolist(), ids.tolist()

    def sound(self, part: slice) -> bool:
        """Whether the logits of these rows make distributions: NaN and infinity show in the maximum, and -inf only rules a token out."""
        return all(map(math.isfinite, self.highest[part]))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, place: int) -> "Reading": ...
    @overload
    def __getitem__(self, place: slice) -> list["Reading"]: ...
    def __getitem__(self, place: int | slice) -> "Reading | list[Reading]":
        if isinstance(place, slice):
            return [Reading(self, i) for i in range(*place.indices(len(self)))]
        return Reading(self, range(len(self))[place])

    def excess(self, place: int, temperature: float) -> float:
        """The log of the sum of exp((logit - highest) / temperature) in a row."""
        if temperature in self.excesses:
            return float(self.excesses[temperature][place])
        if self.host is None:
            row = self.rows[place].double()
            return ((row - row.max()) / temperature).logsumexp(-1).item()
        if self.every and temperature == 1:
            with np.errstate(invalid="ignore"):  # of a request that fails; the others of its pass continue
                over = self.host - np.array(self.highest, dtype=self.host.dtype)[:, None]
                self.excesses[temperature] = np.log(np.exp(over, out=over).sum(-1).astype(float))
            return float(self.excesses[temperature][place])
        over = self.host[place] - self.host.dtype.type(self.highest[place])
        if temperature != 1:
            with np.errstate(over="ignore"):
                over = over / max(temperature, np.finfo(over.dtype).tiny)
        return math.log(float(np.exp(over).sum()))


class Reading:
    """What a pass says of the token that follows one node."""

    __slots__ = ("_ids", "_log_sum", "_logits", "_place", "_read", "_warped")

    def __init__(self, read: Readings, place: int):
        self._read, self._place = read, place
        self._ids: list[TokenId] | None = None
        self._logits: list[float] = []
        self._log_sum: float | None = None
        self._warped: tuple[Warping, Distribution] | None = None

    @property
    def row(self) -> torch.Tensor:
        """The raw logits (V,), where the model is."""
        return self._read.rows[self._place]

    @property
    def size(self) -> int:
        """V."""
        return self._read.size

    @property
    def log_sum(self) -> float:
        """The log of the sum of exp(logit)."""
        if self._log_sum is None:
            self._log_sum = self._read.highest[self._place] + self.excess(1)
        return self._log_sum

    def excess(self, temperature: float) -> float:
        """The log of the sum of exp((logit - highest) / temperature)."""
        return self._read.excess(self._place, temperature)

    def logit(self, token: TokenId) -> float:
        if self._read.host is not None:
            return float(self._read.host[self._place, token])
        ids, logits = self.likeliest()
        return logits[ids.index(token)] if token in ids else self.row[token].item()

    def log_p(self, token: TokenId) -> float:
        """The raw log-probability of a token, in nats."""
        return self.logit(token) - self.log_sum

    @property
    def highest(self) -> float:
        """The largest raw probability."""
        return math.exp(self._read.highest[self._place] - self.log_sum)

    def alternatives(self, count: int) -> tuple[tuple[TokenId, float], ...]:
        """The `count` likeliest tokens and their raw probabilities."""
        ids, logits = self.likeliest(count)
        return tuple((i, math.exp(x - self.log_sum)) for i, x in zip(ids, logits, strict=True))

    def likeliest(self, count: int | None = None) -> tuple[list[TokenId], list[float]]:
        """Ids and logits of the `count` likeliest tokens, or of all that were read, in falling order; the lower id first of equals."""
        if self._ids is None:
            self._ids, self._logits = self._likeliest()
        if count is None or count == len(self._ids):
            return self._ids, self._logits
        if count < len(self._ids):
            return self._ids[:count], self._logits[:count]
        if len(self._ids) == self.size:
            return self._ids, self._logits
        values, ids = top(self.row, min(count, self.size))
        return ids.tolist(), values.tolist()

    def _likeliest(self) -> tuple[list[TokenId], list[float]]:
        read, place = self._read, self._place
        logits, ids = read.likeliest(place)
        if len(ids) > read.held:
            if read.held and logits[-1] == logits[-2] > -math.inf:  # which of the equals comes last is not known
                logits, ids = (x.tolist() for x in top(self.row, read.held))
                return ids, logits
            ids.pop()
            logits.pop()
        if len(set(logits)) < len(logits):
            order = sorted(range(len(ids)), key=lambda i: (-logits[i], ids[i]))
            ids, logits = [ids[i] for i in order], [logits[i] for i in order]
        return ids, logits

    def warp(self, warping: Warping) -> Distribution:
        """The distribution that is sampled: small if the tokens that were read hold all of it, else whole."""
        if self._warped is None or self._warped[0] is not warping:
            few = small(*self.likeliest(), self.size, self.excess, warping)
            self._warped = warping, few or Whole(warp(self.row, warping))
        return self._warped[1]
