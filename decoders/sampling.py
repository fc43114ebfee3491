"""The request's random source, and the residual distribution: all randomness of all decoders."""

import random
from typing import Protocol

import torch

from decoders.shapes import Probs, TokenId


class RandomSource(Protocol):
    """What a decoder may do at random. Tests put a source in its place that enumerates every outcome."""

    def draw(self, probs: Probs, count: int = 1) -> list[int]:
        """`count` independent draws, with replacement, of an index into probs (V,)."""

    def accept(self, probability: float) -> tuple[bool, float]:
        """True with this probability (values above 1 count as 1), and the uniform number u in [0, 1) that decided."""


class SeededSource:
    """Draws by inverting the cumulative distribution at uniform numbers of Python's generator: same seed, same draws on any device."""

    def __init__(self, seed: int):
        self.uniform = random.Random(seed % 2**64).random

    def draw(self, probs: Probs, count: int = 1) -> list[int]:
        u = torch.tensor([self.uniform() for _ in range(count)], dtype=torch.float64, device=probs.device)
        cumulative = probs.double().cumsum(-1)
        # `right` steps over tokens without mass; the factor keeps the product below the total where rounding would reach it.
        below = u * (cumulative[-1] * (1 - 2**-52))
        return torch.searchsorted(cumulative, below, right=True).tolist()

    def accept(self, probability: float) -> tuple[bool, float]:
        u = self.uniform()
        return u < probability, u


def residual(p: Probs, q: Probs) -> Probs:
    """norm(max(0, p - q)), shape (V,): what is left of p once q has been tried and refused (speculative-decoding.txt §2.3).

    Where nothing is left (q covers p, so a refusal has probability zero up to rounding) it is p itself.
    """
    rest = (p - q).clamp_(min=0)
    mass = rest.sum()
    return rest / mass if mass > 0 else p


def without(q: Probs, token: TokenId) -> Probs:
    """q (V,) with `token` ruled out and renormalised; all zeros where there was nothing else."""
    rest = q.clone()
    rest[token] = 0
    mass = rest.sum()
    return rest / mass if mass > 0 else rest
