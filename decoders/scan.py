"""How rows of logits on the host are looked through (Scan): by numpy and torch, or compiled."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch

from decoders.shapes import Logits

MANY = 80  # tokens, of which torch finds the likeliest in less time than kernels


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
    """

    def likeliest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The logits and ids of the `count` likeliest tokens of each row, falling, (n, count).

        Of equals any may come first, unless `count` is 1: then the lowest id. A row with a logit
        that is not a number has NaN as its first one, at any id.
        """

    def excesses(self, rows: np.ndarray, highest: np.ndarray, temperature: float) -> np.ndarray:
        """The log of the sum of exp((logit - highest) / temperature) of each row, (n,)."""


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
