"""Mixtures of target and draft, restated plainly for the oracle."""

from collections.abc import Callable
from typing import Any

import numpy as np

Mixed = Callable[[np.ndarray, np.ndarray], np.ndarray]  # from p and q (V,) to pi (V,)


def ensemble(rule: Any) -> Mixed:
    """w p + (1 - w) q (arXiv 2502.01662)."""
    return lambda p, q: rule.weight * p + (1 - rule.weight) * q


def cascade(rule: Any) -> Mixed:
    """The token rule or OPT (arXiv 2405.19261)."""

    def by_token(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        ok = p >= (1 - rule.alpha) * p.max()
        return q * ok + p * q[~ok].sum()

    def opt(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        least = p.max() - rule.alpha * np.abs(p - q).sum() / 2
        return q if q.max() >= least - 1e-12 else p  # ties may be rounded

    return by_token if rule.defer == "token" else opt
