"""Padding in a batch: the closed form against enumeration, simulation and the paper's reading.

Source:
    Ni et al. 2024, EMS-SD (arXiv 2405.07542), appendix B and figure 6
"""

import itertools

import numpy as np
import pytest
import torch

from decoders.theory import (
    expected_padding,
    longest_acceptance,
    simulated_padding,
)


@pytest.mark.parametrize(
    ("p", "batch", "cap"), [(0.3, 1, 4), (0.5, 3, 3), (0.9, 2, 5), (0.0, 2, 3), (1.0, 3, 4)]
)
def test_padding_by_enumeration(p, batch, cap):
    """All outcomes of a batch, each with its probability, against the sums of the closed form."""
    one = {k: p ** (k - 1) * (1 - p) if k < cap else p ** (cap - 1) for k in range(1, cap + 1)}
    longest, pads, ratio, law = 0.0, 0.0, 0.0, [0.0] * cap
    for outcome in itertools.product(one, repeat=batch):
        weight = torch.tensor([one[k] for k in outcome], dtype=torch.float64).prod().item()
        top = max(outcome)
        law[top - 1] += weight
        longest += weight * top
        pads += weight * (top - sum(outcome) / batch)
        ratio += weight * (1 - sum(outcome) / batch / top)
    assert longest_acceptance(p, batch, cap) == pytest.approx(law)
    padding = expected_padding(p, batch, cap)
    assert (padding.longest, padding.pads, padding.ratio) == pytest.approx((longest, pads, ratio))


def test_the_papers_reading_of_figure_6():
    """From middling accuracy to below 0.8 the ratio exceeds 50% above 8 requests.

    At 0.9, still 30% is wasted (appendix B)."""
    assert all(expected_padding(p, 9, 8).ratio > 0.5 for p in (0.5, 0.6, 0.7))
    assert expected_padding(0.9, 16, 8).ratio == pytest.approx(0.3, abs=0.02)


def test_simulation_agrees_with_the_expectation():
    drawn = simulated_padding(0.7, 4, 8, 20_000, np.random.default_rng(0))
    exact = expected_padding(0.7, 4, 8)
    assert drawn.longest == pytest.approx(exact.longest, rel=0.02)
    assert drawn.pads == pytest.approx(exact.pads, rel=0.02)
    assert drawn.ratio == pytest.approx(exact.ratio, rel=0.02)
