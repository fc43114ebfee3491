"""Where all randomness of all decoders comes from, and the residual distribution."""

import random
from typing import Protocol

import torch

from decoders.shapes import Probs, TokenId


class RandomSource(Protocol):
    """What a decoder may do at random. Tests use a source that enumerates every outcome."""

    def draw(self, probs: Probs, count: int = 1) -> list[int]:
        """`count` indices into probs (V,), drawn independently with replacement."""

    def accept(self, probability: float) -> tuple[bool, float]:
        """True with this probability (above 1 counts as 1), and the uniform number u in [0, 1) that decided."""


class SeededSource:
    """Draws by inverting the cumulative distribution at uniform numbers of Python's generator: one seed gives the same draws on any device."""

    def __init__(self, seed: int):
        self.uniform = random.Random(seed % 2**64).random

    def draw(self, probs: Probs, count: int = 1) -> list[int]:
        u = torch.tensor([self.uniform() for _ in range(count)], dtype=torch.float64, device=probs.device)
        cumulative = probs.double().cumsum(-1)
        # `right` skips tokens without mass; the factor keeps the product below the total in spite of rounding.
        below = u * (cumulative[-1] * (1 - 2**-52))
        return torch.searchsorted(cumulative, below, right=True).tolist()

    def accept(self, probability: float) -> tuple[bool, float]:
        u = self.uniform()
        return u < probability, u


def residual(p: Probs, q: Probs) -> Probs:
    """norm(max(0, p - q)), shape (V,): what is left of p after a draw from q was refused (speculative-decoding.txt §2.3).

    If nothing is left, which means that q covers p and a refusal can only be due to rounding, it is p itself.
    """
    rest = (p - q).clamp_(min=0)
    mass = rest.sum()
    return rest / mass if mass > 0 else p


def without(q: Probs, token: TokenId) -> Probs:
    """q (V,) without `token`, renormalised; all zeros if no other token has mass."""
    rest = q.clone()
    rest[token] = 0
    mass = rest.sum()
    return rest / mass if mass > 0 else rest
