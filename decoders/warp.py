"""Warping: from logits to the distribution that is sampled."""

from dataclasses import dataclass
from numbers import Real

import torch

from decoders.errors import InputError
from decoders.shapes import Logits, Probs


@dataclass(frozen=True)
class Warping:
    """Temperature first, then top-k, then top-p (the token that crosses p is kept).

    temperature 0 puts all probability on the likeliest token, the lowest id of equals; top_k 0 and top_p 1 leave the distribution
    whole. A temperature or top_p below the least normal number of the logits' type counts as that number. Raises InputError for
    values out of range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (_is_number(self.temperature) and 0 <= self.temperature <= 100):
            raise InputError(f"temperature must lie in [0, 100], not {self.temperature!r}.")
        if not (_is_number(self.top_k) and self.top_k >= 0 and self.top_k % 1 == 0):
            raise InputError(f"top_k must be a whole number, 0 (off) or more, not {self.top_k!r}.")
        if not (_is_number(self.top_p) and 0 < self.top_p <= 1):
            raise InputError(f"top_p must lie in (0, 1], not {self.top_p!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def warp(logits: Logits, warping: Warping) -> Probs:
    """logits (..., V) -> probabilities (..., V) of the same float type.

    To warp a joint distribution over (beam, token) pairs, flatten its log-likelihoods into one row first.
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
        before = probs.cumsum(-1) - probs  # the mass of likelier tokens: a token stays while that is below top_p
        probs = probs.masked_fill(before >= max(warping.top_p, least), 0)
        probs = probs / probs.sum(-1, keepdim=True)
    return torch.zeros_like(scaled).scatter_(-1, ids, probs)


def top(scaled: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest of each row in falling order, the lower id first of equals (which torch.topk does not promise)."""
    size = scaled.shape[-1]
    if k >= size:
        return scaled.sort(dim=-1, descending=True, stable=True)
    values, ids = scaled.topk(k + 1)
    if (values[..., k - 1] > values[..., k]).all():
        ids = ids[..., :k].sort(-1).values
    else:  # ties at the edge, as equal beams have: keep the first of those that equal the k-th
        edge = values[..., k - 1 : k]
        above, equal = scaled > edge, scaled == edge
        kept = above | (equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True)))
        ids = kept.nonzero()[:, -1].view(*scaled.shape[:-1], k)
    values, order = scaled.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)
