"""Cells of tokens, and the chi-square test of counts whose chances differ from place to place.

A server's draws visit many places, each with another law, too seldom to test each law by itself.
So the vocabulary of each place is divided into the same few cells: tokens by their rank under the
law, and those that the draft likes better than the target apart from the others. Given the tokens
before it, a drawn token lies in each cell with a chance that is known exactly. The sums of counts
over places have the sums of chances as their means, and a covariance that is the sum over places,
since a draw's surprise is uncorrelated with all that was drawn before.

Wrong rules show in these cells: what refuses too few drafts has too many tokens that the draft
likes better, a wrong temperature or a cut-off has too many of the first ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

# The last ranks of the bands, counted from 1; the tokens below are one more band.
BANDS = (1, 3, 8, 32)
# The least variance of a cell's count; rarer cells are merged. A normal distribution is then close.
LEAST = 20.0


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts of cells, with their means and covariance under the law.

    Attributes:
        observed: counts, (..., cells); those before the last axis are independent repetitions
        expected: their means, (cells,)
        covariance: of the counts, (cells, cells)
    """

    observed: np.ndarray
    expected: np.ndarray
    covariance: np.ndarray

    def statistic(self) -> tuple[np.ndarray, int]:
        """The chi-square statistic of each repetition, (...), and its degrees of freedom.

        It is Pearson's where all places have the same chances.
        """
        merge = merging(self.covariance)
        off = (self.observed - self.expected) @ merge.T
        covariance = merge @ self.covariance @ merge.T
        # The counts sum to a constant, so one direction, or more, has no variance.
        tolerance = 1e-6 * float(np.diag(covariance).max(initial=0.0))
        values, vectors = np.linalg.eigh(covariance)
        varies = values > max(tolerance, 1e-12)
        scaled = (off @ vectors[:, varies]) / np.sqrt(values[varies])
        return (scaled**2).sum(axis=-1), int(varies.sum())


def merging(covariance: np.ndarray) -> np.ndarray:
    """Which cells are counted together, (merged, cells) of 0 and 1.

    The rarest joins the next rarest until the count of each varies by LEAST. It depends on the law
    alone, never on the draws.
    """
    merge = np.eye(len(covariance))
    while len(merge) > 1:
        variance = np.einsum("ic,cd,id->i", merge, covariance, merge)
        first, second = np.argsort(variance, kind="stable")[:2]
        if variance[first] >= LEAST:
            break
        merge[second] += merge[first]
        merge = np.delete(merge, first, axis=0)
    return merge


def p_value(statistic: np.ndarray, degrees: int) -> np.ndarray:
    """The chance of a chi-square statistic at least as large; 1 where nothing varies."""
    if not degrees:
        return np.ones_like(statistic)
    half = torch.as_tensor(np.asarray(statistic) / 2, dtype=torch.float64)
    return torch.special.gammaincc(torch.full_like(half, degrees / 2), half).numpy()


def tally(cells: np.ndarray, chances: np.ndarray) -> Tally:
    """The counts of draws at places with different chances.

    Args:
        cells: the cell of each draw, (..., places)
        chances: the chance of each cell at each place, (places, cells)
    """
    expected = chances.sum(axis=0)
    observed = np.stack([(cells == cell).sum(axis=-1) for cell in range(chances.shape[1])], axis=-1)
    return Tally(observed, expected, np.diag(expected) - chances.T @ chances)


def whole(law: np.ndarray, counts: np.ndarray) -> Tally:
    """The counts of the tokens that were drawn at one place, each in a cell of its own.

    Args:
        law: of the tokens, (V,)
        counts: of each token, (..., V)
    """
    draws = counts.sum(axis=-1).max()
    order = np.argsort(-law, kind="stable")
    often = int((draws * law * (1 - law) >= LEAST).sum())
    kept = order[:often]
    chances = np.append(law[kept], max(0.0, 1 - law[kept].sum()))
    rest = counts.sum(axis=-1, keepdims=True) - counts[..., kept].sum(axis=-1, keepdims=True)
    expected = draws * chances
    return Tally(
        np.concatenate([counts[..., kept], rest], axis=-1),
        expected,
        np.diag(expected) - draws * np.outer(chances, chances),
    )


def labels(p: torch.Tensor, q: torch.Tensor | None) -> torch.Tensor:
    """The cell of each token at each place, (places, V).

    Args:
        p: the law, (places, V)
        q: the draft's law; None if there is no draft
    """
    top = p.topk(min(BANDS[-1], p.shape[-1]), dim=-1).values
    found = torch.zeros_like(p, dtype=torch.int64)
    for last in BANDS:
        if last <= top.shape[-1]:
            found += p < top[:, last - 1 : last]
    return found if q is None else found + (len(BANDS) + 1) * (q > p)


def shares(law: torch.Tensor, labels: torch.Tensor, drafted: bool) -> torch.Tensor:
    """The chance of each cell under a law of tokens, (places, cells)."""
    cells = (len(BANDS) + 1) * (1 + drafted)
    found = torch.zeros(len(law), cells, dtype=torch.float64, device=law.device)
    return found.scatter_add_(1, labels, law.double())


def combined(tallies: Sequence[Tally]) -> tuple[np.ndarray, int]:
    """The sum of independent statistics, and of their degrees of freedom."""
    each = [one.statistic() for one in tallies]
    return sum((s for s, _ in each), np.zeros(())), sum(d for _, d in each)
