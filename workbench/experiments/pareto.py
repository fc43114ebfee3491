"""Pareto fronts: the points that no other beats in both of two figures."""

from collections.abc import Sequence

HIGHER_IS_BETTER = frozenset(
    {"tokens/s", "x greedy", "tokens/call", "accepted/tested", "accepted/drafted", "score"}
)


def front(points: Sequence[tuple[float, float]], x: str, y: str) -> list[int]:
    """The Pareto front of points; equal points are all on it.

    Args:
        points: (x, y) of each point
        x: name of the first figure, which says whether higher is better
        y: name of the second

    Returns:
        indices, ordered by x, of the points for which no other is at least as good in both figures
        and better in one
    """
    signs = [1.0 if name in HIGHER_IS_BETTER else -1.0 for name in (x, y)]
    turned = [(signs[0] * a, signs[1] * b) for a, b in points]
    kept = [
        i
        for i, (a, b) in enumerate(turned)
        if not any(c >= a and d >= b and (c > a or d > b) for c, d in turned)
    ]
    return sorted(kept, key=lambda i: points[i])
