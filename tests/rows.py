"""Rows of logits of many shapes, and what top-p and min-p leave of them, by a plain sort."""

import numpy as np
from hypothesis import strategies as st

SHAPES = {
    "peaked": lambda rng, size: np.concatenate([[14.0, 13.5], rng.normal(0, 1, size)])[:size],
    "flat": lambda rng, size: rng.normal(0, 0.3, size),
    "equal": lambda rng, size: np.full(size, -2.5),
    "levels": lambda rng, size: rng.integers(0, 6, size) / 2,
    "two levels": lambda rng, size: rng.integers(0, 2, size) * 3.0,
    "long tail": lambda rng, size: -1.3 * np.log(1.0 + rng.permutation(size)),
    "rising": lambda rng, size: np.linspace(-1, 1, size),
    "falling": lambda rng, size: np.linspace(1, -1, size),
    "sixteen bits": lambda rng, size: np.ldexp(np.round(rng.normal(0, 128, size)), -7),
    "ruled out": lambda rng, size: np.where(rng.random(size) < 0.9, -np.inf, rng.normal(size=size)),
}
SIZES = st.integers(1, 4000) | st.integers(1, 60_000)
CUTS = st.tuples(
    st.sampled_from([0.5, 0.7, 1.0, 1.5]),
    st.sampled_from([1e-9, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.9999, 1.0]),
    st.sampled_from([0.0, 0.0, 1e-4, 0.3, 1.0]),
)  # temperature, top-p, min-p


def row_of(shape: str, size: int, seed: int) -> np.ndarray:
    row = SHAPES[shape](np.random.default_rng(seed), size).astype(np.float32)
    row[seed % size] = max(row[seed % size], -2.5)  # at least one token is possible
    return row


def left(row: np.ndarray, temperature: float, top_p: float, min_p: float) -> tuple:
    """The distribution (V,) that is left, and how near a sum comes to top-p, where it is rounded.

    Sums of equal masses are whole numbers, which nothing rounds.
    """
    order = np.argsort(-row, kind="stable")
    masses = np.exp((row[order].astype(np.float64) - float(row.max())) / temperature)
    before = np.concatenate([[0.0], masses.cumsum()[:-1]])
    stay = masses >= min_p
    if top_p < 1:
        stay &= before < top_p * masses.sum()
    found = np.zeros(len(row))
    found[order] = masses * stay / (masses * stay).sum()
    margin = np.abs(before / masses.sum() - top_p).min()
    return found, margin if len(set(masses)) > 1 else 1.0
