"""How rows of logits on the host are looked through (Scan): by numpy and torch, or compiled."""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch

from decoders.shapes import Logits

MANY = 80  # tokens, of which torch finds the likeliest in less time than kernels
FEW = 1024  # numbers that are sorted; more are parted first
SAMPLE, ASIDE = 64, 6  # numbers that tell where to part them, and how many of these they may err


class Found(NamedTuple):
    """What is read of rows of logits (n, V).

    Attributes:
        logits, ids: see `Scan.likeliest`, (n, count)
        excesses: see `Scan.excesses`, by temperature, (n,)
    """

    logits: np.ndarray
    ids: np.ndarray
    excesses: Mapping[float, np.ndarray]


class Scan(Protocol):
    """What is read of rows of logits (n, V) on the host.

    The result for a row depends on this row alone.

    Attributes:
        stable: the most likeliest tokens of which, of equals, the lower id comes first; of more any
            may
    """

    stable: int = 1

    def likeliest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The logits and ids of the `count` likeliest tokens of each row, falling, (n, count).

        A row with a logit that is not a number has NaN as its first one, at any id.
        """

    def excesses(self, rows: np.ndarray, highest: np.ndarray, temperature: float) -> np.ndarray:
        """The log of the sum of exp((logit - highest) / temperature) of each row, (n,)."""

    def nucleus(
        self, row: np.ndarray, temperature: float, seen: float, top_p: float, min_p: float
    ) -> np.ndarray:
        """The distribution (V,) that top-p and then min-p leave of a row of logits (V,).

        It takes a time in proportion to V, be the row peaked or flat.

        Args:
            row: the logits
            temperature: that of the distribution
            seen: the temperature of the probabilities that top-p and min-p see
            top_p, min_p: as in a Warping
        """


class PlainScan(Scan):
    """By numpy and torch, for any number type."""

    def likeliest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        if count == 1:
            ids = rows.argmax(-1)[:, None]
            return np.take_along_axis(rows, ids, -1), ids
        values, places = torch.from_numpy(rows).topk(count)
        return values.numpy(), places.numpy()

    def excesses(self, rows: np.ndarray, highest: np.ndarray, temperature: float) -> np.ndarray:
        # A request with invalid logits fails; the others of its pass continue.
        with np.errstate(invalid="ignore", over="ignore"):
            over = rows - highest[:, None].astype(rows.dtype)
            if temperature != 1:
                over /= max(temperature, np.finfo(over.dtype).tiny)
            return np.log(np.exp(over, out=over).sum(-1))

    def nucleus(
        self, row: np.ndarray, temperature: float, seen: float, top_p: float, min_p: float
    ) -> np.ndarray:
        over, tiny = row.astype(np.float64) - row.max(), np.finfo(row.dtype).tiny
        with np.errstate(over="ignore"):
            masses = np.exp(over / max(seen, tiny))
            hot = masses if seen == temperature else np.exp(over / max(temperature, tiny))
        stay = masses >= min_p
        if top_p < 1:
            least, count = edge(over, masses, top_p * masses.sum())
            stay &= over >= least
            stay[np.flatnonzero(over == least)[count:]] = False
        hot *= stay
        return (hot / hot.sum()).astype(row.dtype)


def edge(row: np.ndarray, masses: np.ndarray, goal: float) -> tuple[float, int]:
    """Where a row (V,) is cut that falls, until its masses (V,) reach a goal.

    It is `decoders.engine.kernels.select.edge` in numpy's terms.

    Returns:
        the least number that stays, and how many equals of it do
    """
    before, rest, last = 0.0, masses.sum(), SAMPLE - 1
    while len(row) > FEW:
        places = np.arange(SAMPLE) * int(0.6180339887 * len(row)) % len(row)
        places = places[np.argsort(-row[places])]
        # From below: a sample may miss the few that are as heavy as all others.
        left = masses[places[::-1]].cumsum() * (len(row) / SAMPLE)
        middle = max(0, last - int(np.searchsorted(left, rest - (goal - before))))
        high, low = row[places[[max(middle - ASIDE, 0), min(middle + ASIDE, last)]]]
        if high == row[places[0]] and low == row[places[last]]:
            high = low = row[places[middle]]
        above, down = row > high, row >= low
        more, most = masses @ above, masses @ down
        if before + more >= goal:
            side, rest = above, more
        elif before + most < goal:
            side, rest, before = ~down, rest - most, before + most
        elif high == low:
            equals = np.count_nonzero(down) - np.count_nonzero(above)
            count = math.ceil((goal - before - more) / (most - more) * equals)
            return low, min(max(count, 1), equals)
        else:
            side, rest, before = down ^ above, most - more, before + more
        part = np.flatnonzero(side)
        row, masses = row[part], masses[part]
    falling = np.argsort(-row)
    sums = before + masses[falling].cumsum()
    first = row[falling[: np.searchsorted(sums, goal) + 1]]
    if not len(first):  # rounding lets all of them stay
        return -math.inf, 0
    return first[-1], int(np.count_nonzero(first == first[-1]))


PLAIN = PlainScan()


def fetched(rows: Logits, count: int, temperatures: Collection[float]) -> Found:
    """What is read of rows (n, V) on a device, at these temperatures and at 1, in one transfer."""
    values, ids = rows.topk(count)
    others = [1.0, *sorted(set(temperatures) - {0, 1})]
    over, tiny = rows - values[:, :1], torch.finfo(rows.dtype).tiny
    sums = [(over / max(t, tiny)).logsumexp(-1, keepdim=True) for t in others]
    # Float64 holds every logit and every id.
    together = torch.cat([x.double() for x in (values, ids, *sums)], -1).cpu().numpy()
    logits, tokens, excesses = np.split(together, [count, 2 * count], -1)
    return Found(logits, tokens.astype(np.int64), dict(zip(others, excesses.T, strict=True)))
