"""Warping: from logits to the distribution that is sampled."""

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from operator import neg
from typing import Any, Self

import torch

from decoders.devices import device_of
from decoders.distribution import Small, point_mass
from decoders.errors import InputError, allowed, flag
from decoders.scan import PLAIN, Scan
from decoders.shapes import Logits, Probs

NUCLEUS = 64  # number of the likeliest tokens that are read if only top-p or min-p limits them
# A larger top-k takes whole distributions: more numbers are faster in a tensor than one by one.
MOST = 256


@dataclass(frozen=True)
class Warping:
    """Temperature first, then top-nσ, top-k, top-p (the token that crosses p is kept) and min-p.

    Each of them sees the tokens that the one before it has left. This is the order of transformers;
    llama.cpp has the same with the temperature last, as with `temperature_last`.

    Attributes:
        temperature: 0 puts all probability on the likeliest token; of equals, on the lowest id
        top_k: number of tokens kept; 0 keeps all
        top_p: mass of tokens kept; 1 keeps all. A temperature or top_p below the least normal
            number of the logits' type counts as that number.
        min_p: the least probability kept, over that of the likeliest token; 0 keeps all
        top_n_sigma: how far below the highest logit one may lie, in standard deviations of the
            row's finite logits (divided by their number); 0 keeps all. The tokens kept are the same
            at any temperature.
        temperature_last: let top-p and min-p see the probabilities at temperature 1

    Raises:
        InputError: for values out of range

    Source:
        Nguyen et al. 2024 (min-p, arXiv 2407.01082); Tang et al. 2024 (top-nσ, arXiv 2411.07641).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    top_n_sigma: float = 0.0
    temperature_last: bool = False

    def __post_init__(self) -> None:
        for name, *bounds in (
            ("temperature", 0.0, 100.0), ("top_k", 0), ("top_p", 0.0, 1.0), ("min_p", 0.0, 1.0),
            ("top_n_sigma", 0.0, 100.0),
        ):  # fmt: skip
            object.__setattr__(self, name, allowed(name, getattr(self, name), *bounds))
        object.__setattr__(
            self, "temperature_last", flag("temperature_last", self.temperature_last)
        )
        if self.top_p == 0:
            raise InputError("top_p must be above 0, which would keep no token; 1 keeps all.")

    @classmethod
    def of(cls, options: Any) -> Self:
        """The warping among the attributes of some options."""
        return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})

    @property
    def usual(self) -> bool:
        """Whether it is a temperature with top-k, top-p and min-p after it, and nothing else."""
        return not (self.top_n_sigma or self.temperature_last)

    @property
    def cuts(self) -> bool:
        """Whether it may give a token probability 0 at temperatures above 0."""
        return bool(self.top_k or self.top_p < 1 or self.min_p or self.top_n_sigma)


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


def warp(logits: Logits, warping: Warping, scan: Scan = PLAIN) -> Probs:
    """Probabilities (..., V) from logits (..., V), of the same float type.

    To warp a joint distribution over (beam, token) pairs, flatten its log-likelihoods to one row
    first.

    Args:
        logits: the logits
        warping: what to do with them
        scan: finds what top-p leaves of rows on the host
    """
    if warping.temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    least, last = torch.finfo(logits.dtype).tiny, warping.temperature_last
    temperature, top_p = max(warping.temperature, least), max(warping.top_p, least)
    if warping.top_n_sigma:
        over = logits - logits.amax(-1, keepdim=True)
        logits = over.masked_fill(over < -warping.top_n_sigma * deviation(logits), -math.inf)
    if warping.top_p < 1 and not warping.top_k and device_of(logits.device).on_host:
        settings = temperature, 1.0 if last else temperature, top_p, warping.min_p
        rows = logits.reshape(-1, logits.shape[-1]).numpy()
        found = [torch.from_numpy(scan.nucleus(row, *settings)) for row in rows]
        return found[0] if logits.dim() == 1 else torch.stack(found).view_as(logits)
    # The maximum is subtracted so that a tiny temperature cannot make the largest logit infinite.
    over = logits - logits.amax(-1, keepdim=True)
    if not warping.cuts:
        return (over / temperature).softmax(-1)
    ordered = warping.top_k or warping.top_p < 1
    values, ids = top(over, int(warping.top_k) or over.shape[-1]) if ordered else (over, None)
    probs = (values / temperature).softmax(-1)
    seen = values.softmax(-1) if last else probs
    if warping.top_p < 1:
        # The mass of likelier tokens: a token stays while that is below top_p.
        before = seen.cumsum(-1) - seen
        probs = probs.masked_fill(before >= top_p, 0)
    if warping.min_p:
        probs = probs.masked_fill(seen < warping.min_p * seen.amax(-1, keepdim=True), 0)
    if warping.top_p < 1 or warping.min_p:
        probs = probs / probs.sum(-1, keepdim=True)
    return probs if ids is None else torch.zeros_like(over).scatter_(-1, ids, probs)


def deviation(logits: Logits) -> torch.Tensor:
    """The standard deviation (..., 1) of the finite logits (..., V): -inf rules a token out."""
    finite = logits.isfinite()
    count = finite.sum(-1, keepdim=True)
    mean = logits.where(finite, 0).sum(-1, keepdim=True) / count
    return ((logits - mean).where(finite, 0).square().sum(-1, keepdim=True) / count).sqrt()


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
        warping: see `warp`; top-nσ needs all logits
    """
    if not ids or warping.temperature == 0:
        return point_mass(ids[0]) if ids else None
    k = min(int(warping.top_k), size) or size
    known = k < size or (warping.top_p == 1 and not warping.min_p)
    if warping.top_n_sigma or (len(ids) < k and known):
        return None
    highest, temperature = logits[0], max(warping.temperature, sys.float_info.min)
    weights = [math.exp((x - highest) / temperature) for x in logits[:k]]
    kept, seen = len(weights) + 1, weights
    if warping.temperature_last:
        temperature, seen = 1.0, [math.exp(x - highest) for x in logits[:k]]
    if warping.top_p < 1:
        total = sum(seen) if len(seen) == k else math.exp(excess(temperature))
        # A token stays while the mass of likelier ones is below top_p.
        kept = bisect_left(list(accumulate(seen)), warping.top_p * total) + 1
    if warping.min_p and seen[-1] < warping.min_p:
        kept = min(kept, bisect_right(seen, -warping.min_p, key=neg))
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
