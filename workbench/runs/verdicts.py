"""Whether draws refute a law, however often one looks.

The evidence is the likelihood of the draws so far under a mixture of other laws, divided by their
likelihood under the law itself. If the law is true, this ratio is a martingale that begins at 1,
and the chance that it ever reaches 1 / level is at most the level (Ville 1939). So draws may be
added as often as one likes, for any reason. The mixture is a Dirichlet distribution around the law.

Source:
    Lindon and Malek 2022 (arXiv 2011.03567), section 2.
"""

import math
from collections.abc import Sequence

LEVEL = 1e-4  # the chance that any true law of a run is ever called unlike
SOUGHT = 0.1  # total variation of the faults that the mixture expects, and that `needed` draws find
# The share of cases in which they find them, and that quantile of the normal distribution.
FOUND, QUANTILE = 0.99, 2.3263


def evidence(counts: Sequence[int], chances: Sequence[float]) -> float:
    """The log of the martingale for the counts of cells with these chances, all above 0."""
    draws, spread = sum(counts), _spread(len(chances))
    log_ratio = math.lgamma(spread) - math.lgamma(spread + draws)
    for count, p in zip(counts, chances, strict=True):
        log_ratio += math.lgamma(spread * p + count) - math.lgamma(spread * p) - count * math.log(p)
    return log_ratio


def _spread(cells: int) -> float:
    """The Dirichlet's concentration.

    Its laws lie (cells - 1) / spread from the centre, by chi-square on average; SOUGHT is at least
    4 SOUGHT^2 by the same measure, with equality where half of the mass moves to the other half.
    """
    return (cells - 1) / (4 * SOUGHT**2)


def p_value(counts: Sequence[int], chances: Sequence[float]) -> float | None:
    """A bound on the chance that draws from these chances ever give as much evidence against them.

    Args:
        counts: draws in each cell
        chances: probability of each cell

    Returns:
        0 if a draw lies in a cell of chance 0, which is proof; None if one cell has all the
            probability, and for no draws
    """
    if any(count for count, p in zip(counts, chances, strict=True) if not p):
        return 0.0
    counts, chances = (
        [n for n, p in zip(counts, chances, strict=True) if p],
        [p for p in chances if p],
    )
    if len(chances) < 2 or not sum(counts):
        return None
    return math.exp(-max(0.0, evidence(counts, chances)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Correct p values for there being several of them.

    Each becomes a bound on the chance that any of the true laws looks so far off, whether or not
    their draws have seeds in common.

    Source:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    ordered = sorted((p, i) for i, p in enumerate(p_values) if p is not None)
    corrected, highest = list(p_values), 0.0
    for rank, (p, i) in enumerate(ordered):
        corrected[i] = highest = max(highest, min(1.0, (len(ordered) - rank) * p))
    return corrected


def needed(cells: int, laws: int = 1) -> int:
    """The draws that refute a law that is off by SOUGHT in at least FOUND of all cases.

    This holds whichever way the law is off. For n draws, Pearson's distance has a noncentral
    chi-square distribution (d = cells - 1, 4 n SOUGHT^2), and twice the evidence is about distance
    m / (1 + m) - d log(1 + m), with m = n / spread. The normal distribution's lower tail bounds
    that distribution's.

    Args:
        cells: number of cells
        laws: laws tested together, for Holm's correction
    """
    degrees, enough = cells - 1, 2 * math.log(laws / LEVEL)
    for draws in range(100, 1_000_000, 10):
        shift, more = 4 * draws * SOUGHT**2, draws / _spread(cells)
        distance = degrees + shift - QUANTILE * math.sqrt(2 * (degrees + 2 * shift))
        if distance * more / (1 + more) - degrees * math.log1p(more) >= enough:
            return draws
    # `cells` makes at most twenty.
    raise ValueError(f"{cells} cells are too many")  # pragma: no cover
