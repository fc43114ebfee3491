"""Readings: a pass's result for the token that follows a node.

They are brought to the host in one transfer for the whole pass.
"""

import math
import sys
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch

from decoders.devices import device_of
from decoders.distribution import (
    PLAIN,
    Distribution,
    Scan,
    Tops,
    Warping,
    Whole,
    draws,
    read_of,
    small,
    top,
    warp,
)
from decoders.shapes import Logits, TokenId

NUCLEUS = 64  # number of the likeliest tokens that are read if only top-p or min-p limits them
# A larger top-k takes whole distributions: more numbers are faster in a tensor than one by one.
MOST = 256
FEW = 8  # rows that are all read at once: what numpy and torch take for a call is more than they do


def held(warping: Warping) -> int:
    """The number of the likeliest tokens that a small distribution needs."""
    if warping.temperature == 0:
        return 1
    if warping.top_k > 0:
        return warping.top_k if warping.top_k <= MOST else 1
    return NUCLEUS if (warping.top_p < 1 or warping.min_p) and not warping.top_n_sigma else 1


def sought(held: int) -> int:
    """The number of tokens to look for if `held` must be known: the last may have an equal."""
    return held + 1 if held > 1 else 1


class Readings:
    """The readings of all rows of a pass.

    Args:
        rows: raw logits (n, V), on the model's device, or as an array on the host
        likeliest: number of the likeliest tokens to read at once; more are fetched when needed
        temperatures: those that distributions are warped with
        every: whether all rows will be warped, as a draft's are; the rules look at few of the
            target's
        scan: looks through rows that are on the host
        tops: what was already read of these

    Attributes:
        rows: the raw logits (n, V), on the model's device or the host
        held: how many of the likeliest tokens are known, one more being looked at
        host: the rows, if they are on the host
        stable: whether of equals among these the lower id comes first
    """

    def __init__(
        self,
        rows: Logits | np.ndarray,
        likeliest: int,
        temperatures: Collection[float] = (),
        every: bool = False,
        scan: Scan = PLAIN,
        tops: Tops | None = None,
    ):
        self.excesses: dict[float, Sequence[float]]
        self._length: int = rows.shape[0]
        self.size: int = rows.shape[1]
        self.host: np.ndarray | None = None
        self.rows = torch.from_numpy(rows) if isinstance(rows, np.ndarray) else rows
        self.held = min(likeliest, self.size)
        self.every = every or self._length <= FEW
        self.scan, self.stable = scan, False
        if isinstance(rows, np.ndarray):
            self._look_through(rows, tops)
        elif device_of(rows.device).on_host:
            self._look_through(rows.numpy(), tops)
        else:
            self._fetch(rows, temperatures, tops)

    def _look_through(self, rows: np.ndarray, tops: Tops | None) -> None:
        self.host = rows
        count = min(sought(self.held), self.size) if self.every else 1
        if not tops or tops.ids.shape[1] < count:
            excesses = tops.excesses if tops else {}
            tops = Tops(*self.scan.likeliest(rows, count), excesses, self.scan)
        self._tops = tops.logits.tolist(), tops.ids.tolist()
        # A device leaves equals in any order.
        self.stable = tops.scan is not None and self.held < self.scan.stable
        self._known = tops.ids.shape[1] >= min(sought(self.held), self.size)
        self.highest = [values[0] for values in self._tops[0]]
        self.excesses = {t: sums.tolist() for t, sums in tops.excesses.items()}

    def _fetch(self, rows: Logits, temperatures: Collection[float], tops: Tops | None) -> None:
        # One more than those that are held: the last may have an equal.
        count = min(self.held + 1, self.size)
        sums = sorted({1.0, *temperatures} - {0})
        if not tops or tops.ids.shape[1] < count or not tops.excesses.keys() >= {*sums}:
            tiny = torch.finfo(rows.dtype).tiny
            together = read_of(rows, count, [max(t, tiny) for t in sums]).cpu().numpy()
            logits, tokens, excesses = np.split(together, [count, 2 * count], -1)
            tops = Tops(logits, tokens.astype(np.int64), dict(zip(sums, excesses.T, strict=True)))
        self.values, self.ids, self.highest = tops.logits, tops.ids, tops.logits[:, 0].tolist()
        self.excesses = {t: sums.tolist() for t, sums in tops.excesses.items()}

    def likeliest(self, place: int) -> tuple[list[float], list[TokenId]]:
        """Logits and ids of the likeliest tokens of one row, and perhaps of more."""
        if self.host is None:
            return self.values[place].tolist(), self.ids[place].tolist()
        if self._known:
            return self._tops[0][place], self._tops[1][place]
        count = min(self.held + 1, self.size)
        values, ids = self.scan.likeliest(self.host[place : place + 1], count)
        return values[0].tolist(), ids[0].tolist()

    def sound(self, part: slice) -> bool:
        """Whether the logits of these rows make distributions.

        NaN and infinity show in the maximum, and -inf only rules a token out.
        """
        return all(map(math.isfinite, self.highest[part]))

    def __iter__(self) -> Iterator["Reading"]:
        return iter(self.of(slice(None), self.held))

    def of(self, part: slice, held: int) -> list["Reading"]:
        """The readings of some rows, each with at most `held` of the likeliest tokens."""
        most = min(held, self.held)
        return [Reading(self, i, most) for i in range(*part.indices(self._length))]

    def logit(self, place: int, token: TokenId) -> float:
        if self.host is not None:
            return self.host.item(place, token)
        near = np.flatnonzero(self.ids[place] == token)
        if len(near):
            return float(self.values[place, near[0]])
        return self.rows[place, token].item()

    def excess(self, place: int, temperature: float) -> float:
        """The log of the sum of exp((logit - highest) / temperature) in a row."""
        if temperature in self.excesses:
            return self.excesses[temperature][place]
        if self.host is None:
            row = self.rows[place].double()
            return ((row - row.max()) / temperature).logsumexp(-1).item()
        part = slice(None) if self.every else slice(place, place + 1)
        highest = np.array(self.highest[part])
        sums = self.scan.excesses(self.host[part], highest, temperature).tolist()
        if not self.every:
            return sums[0]
        self.excesses[temperature] = sums
        return sums[place]


class Reading:
    """A pass's result for the token that follows one node.

    Args:
        read: the readings of the pass
        place: the row in them
        held: most of the likeliest tokens to read
    """

    __slots__ = ("_held", "_ids", "_log_sum", "_logits", "_place", "_read", "_warped")

    def __init__(self, read: Readings, place: int, held: int):
        self._read, self._place, self._held = read, place, held
        self._ids: list[TokenId] | None = None
        self._logits: list[float] = []
        self._log_sum: float | None = None
        self._warped: tuple[Warping, Distribution] | None = None

    @property
    def row(self) -> torch.Tensor:
        """The raw logits (V,), on the model's device."""
        return self._read.rows[self._place]

    @property
    def size(self) -> int:
        return self._read.size

    @property
    def log_sum(self) -> float:
        """The log of the sum of exp(logit)."""
        if self._log_sum is None:
            self._log_sum = self._read.highest[self._place] + self.excess(1)
        return self._log_sum

    def excess(self, temperature: float) -> float:
        return self._read.excess(self._place, temperature)

    @property
    def peak(self) -> float:
        """The largest logit."""
        return self._read.highest[self._place]

    def logit(self, token: TokenId) -> float:
        return self._read.logit(self._place, token)

    def log_p(self, token: TokenId) -> float:
        """The raw log-probability of a token, in nats."""
        return self.logit(token) - self.log_sum

    @property
    def highest(self) -> float:
        """The largest raw probability."""
        return math.exp(self._read.highest[self._place] - self.log_sum)

    @property
    def entropy(self) -> float:
        """The entropy of the raw probabilities, in nats."""
        host = self._read.host
        if host is None:
            return Whole(self.row.softmax(-1)).entropy
        over = np.maximum(host[self._place] - host.dtype.type(self._read.highest[self._place]), -99)
        weights = np.exp(over)
        return math.log(weights.sum()) - float(weights @ over / weights.sum())

    def likeliest(self, count: int | None = None) -> tuple[list[TokenId], list[float]]:
        """Ids and logits of the `count` likeliest tokens, or of all that were read.

        They are in falling order; of equals the lower id comes first.
        """
        if self._ids is None:
            self._ids, self._logits = self._likeliest()
        if count is None or count <= (known := len(self._ids)) or known == self.size:
            return self._ids[:count], self._logits[:count]
        values, ids = top(self.row, min(count, self.size))
        return ids.tolist(), values.tolist()

    def _likeliest(self) -> tuple[list[TokenId], list[float]]:
        held = self._held
        logits, ids = self._read.likeliest(self._place)
        if self._read.stable or len(set(logits)) == len(logits):
            return ids[:held], logits[:held]
        # Equals come in any order, and it is not known which of them is the last one held.
        if 0 < held < len(ids) and logits[held - 1] == logits[held] > -math.inf:
            values, first = top(self.row, held)
            return first.tolist(), values.tolist()
        order = sorted(range(min(held, len(ids))), key=lambda i: (-logits[i], ids[i]))
        return [ids[i] for i in order], [logits[i] for i in order]

    def warp(self, warping: Warping) -> Distribution:
        """The distribution that is sampled: small if the tokens read hold all of it, else whole."""
        if self._warped is None or self._warped[0] is not warping:
            heat, read = None, self._read

            def excess(temperature: float) -> float:
                """The row's, with the masses that are cut if it is flat."""
                nonlocal heat
                if read.host is None or temperature in read.excesses or not read.scan.alike:
                    return self.excess(temperature)
                heat = read.scan.heat(read.host[self._place], temperature)
                return math.log(heat[1])

            if warping.temperature and not warping.cuts:
                self._warped = warping, Uncut(read, self._place, warping)
            else:
                few = small(*self.likeliest(), self.size, excess, warping)
                self._warped = warping, few or Whole(warp(self.row, warping, read.scan, heat))
        return self._warped[1]


class Uncut(Whole):
    """The distribution after a node where warping leaves all tokens: exp(logit / T) over its sum.

    Args:
        read: the readings of the pass
        place: the row in them
        warping: a temperature T above 0 alone
    """

    __slots__ = ("_excess", "_place", "_read", "_temperature")

    def __init__(self, read: Readings, place: int, warping: Warping):
        super().__init__(lambda: warp(read.rows[place], warping))
        self._read, self._place = read, place
        self._temperature = max(warping.temperature, sys.float_info.min)
        self._excess: float | None = None

    def __getitem__(self, token: TokenId) -> float:
        read, place = self._read, self._place
        if self._excess is None:
            self._excess = read.excess(place, self._temperature)
        over = read.logit(place, token) - read.highest[place]
        return math.exp(over / self._temperature - self._excess)

    def draw(self, uniforms: Sequence[float]) -> list[TokenId]:
        read, place = self._read, self._place
        if read.host is None:
            over = read.rows[place].double() - read.highest[place]
            return Whole((over / self._temperature).exp()).draw(uniforms)
        masses, _ = read.scan.heat(read.host[place], self._temperature)
        return draws(masses, uniforms)
