"""Warping: from logits to the distribution that is sampled."""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from decoders.distribution import Small, point_mass
from decoders.errors import InputError, allowed
from decoders.shapes import Logits, Probs


@dataclass(frozen=True)
class Warping:
    """Temperature first, then top-k, then top-p (the token that crosses p is kept).

    Attributes:
        temperature: 0 puts all probability on the likeliest token; of equals, on the lowest id
        top_k: number of tokens kept; 0 keeps all
        top_p: mass of tokens kept; 1 keeps all. A temperature or top_p below the least normal
            number of the logits' type counts as that number.

    Raises:
        InputError: for values out of range
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, *bounds in (("temperature", 0.0, 100.0), ("top_k", 0), ("top_p", 0.0, 1.0)):
            object.__setattr__(self, name, allowed(name, getattr(self, name), *bounds))
        if self.top_p == 0:
            raise InputError("top_p must be above 0, which would keep no token; 1 keeps all.")


def warp(logits: Logits, warping: Warping) -> Probs:
    """Probabilities (..., V) from logits (..., V), of the same float type.

    To warp a joint distribution over (beam, token) pairs, flatten its log-likelihoods to one row
    first.
    """
    if warping.temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    # The maximum is subtracted so that a tiny temperature cannot make the largest logit infinite.
    least = torch.finfo(logits.dtype).tiny
    scaled = (logits - logits.amax(-1, keepdim=True)) / max(warping.temperature, least)
    size = scaled.shape[-1]
    k = min(int(warping.top_k), size) or size
    if k == size and warping.top_p == 1:
        return scaled.softmax(-1)
    values, ids = top(scaled, k)
    probs = values.softmax(-1)
    if warping.top_p < 1:
        # The mass of likelier tokens: a token stays while that is below top_p.
        before = probs.cumsum(-1) - probs
        probs = probs.masked_fill(before >= max(warping.top_p, least), 0)
        probs = probs / probs.sum(-1, keepdim=True)
    return torch.zeros_like(scaled).scatter_(-1, ids, probs)


def small(
    ids: Sequence[int],
    logits: Sequence[float],
    size: int,
    excess: Callable[[float], float],
    warping: Warping,
) -> Small | None:
    """The warped distribution, or None if the likeliest ids do not hold all of it.

    Args:
        ids: the likeliest ids by falling logit; of equals the lower id first
        logits: their logits
        size: number of all ids
        excess: from a temperature t to the log of the sum, over all ids, of
            exp((logit - highest) / t)
        warping: temperature, top-k and top-p
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


def top(scaled: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest values of each row in falling order, and their ids.

    Of equals the lower id comes first, which torch.topk does not promise.
    """
    size = scaled.shape[-1]
    if k >= size:
        return scaled.sort(dim=-1, descending=True, stable=True)
    values, ids = scaled.topk(k + 1)
    if (values[..., k - 1] > values[..., k]).all():
        ids = ids[..., :k].sort(-1).values
    # Ties at the edge, as of equal beams: keep the first of the values that equal the k-th.
    else:
        edge = values[..., k - 1 : k]
        above, equal = scaled > edge, scaled == edge
        kept = above | (equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True)))
        ids = kept.nonzero()[:, -1].view(*scaled.shape[:-1], k)
    values, order = scaled.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)
