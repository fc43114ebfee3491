"""Closed forms against simulation and enumeration."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoders import theory
from decoders.distribution import Whole
from tests.pieces import FORMS

# ---- Speculative decoding


@pytest.mark.parametrize(
    ("alpha", "gamma", "speed"), [(0.6, 2, 1.96), (0.9, 2, 2.71), (0.9, 10, 6.86)]
)
def test_table_1_of_speculative_decoding(alpha, gamma, speed):
    assert theory.walltime_factor(alpha, gamma, 0) == pytest.approx(speed, abs=0.005)


@given(st.floats(0, 1), st.integers(0, 12))
def test_expected_tokens_is_the_mean_of_a_capped_geometric(alpha, gamma):
    mean = sum((k + 1) * alpha**k * (1 - alpha) for k in range(gamma)) + (gamma + 1) * alpha**gamma
    assert theory.expected_tokens(alpha, gamma) == pytest.approx(mean)


# ---- DSBD's width


def drawn_pair(seed, V):
    numbers = torch.Generator().manual_seed(seed)
    weights = torch.rand(2, V, generator=numbers, dtype=torch.float64) ** 2
    return [(row / row.sum()).tolist() for row in weights]


def brute_force(p, q, m):
    """The number of accepted draws: every sequence of m draws, all ways to accept and refuse
    them."""
    law = [0.0] * (m + 1)

    def go_on(rest, left, accepted, probability):
        if not left:
            law[accepted] += probability
            return
        for x in range(len(p)):
            chance = min(1.0, rest[x] / q[x])
            if chance > 0:
                go_on(p, left - 1, accepted + 1, probability * q[x] * chance)
            if chance < 1:
                over = [max(0.0, a - b) for a, b in zip(rest, q, strict=True)]
                go_on(
                    [a / sum(over) for a in over], left - 1, accepted,
                    probability * q[x] * (1 - chance),
                )  # fmt: skip

    go_on(p, m, 0, 1.0)
    return law


@pytest.mark.parametrize(("m", "seed"), [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)])
def test_the_number_of_accepted_draws_equals_a_brute_force_acceptance_tree(seed, m):
    p, q = drawn_pair(seed, 2 + (m < 4))
    expected = brute_force(p, q, m)
    for form in FORMS.values():
        both = (form(torch.tensor(x, dtype=torch.float64)) for x in (p, q))
        alphas = theory.beam_acceptances(theory.Refusals(*both), m)
        assert theory.accepted_distribution(alphas) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(0, 1), max_size=5), st.floats(0.01, 1), st.integers(1, 3))
def test_the_width_is_the_most_beams_that_are_likely_enough(alphas, threshold, least):
    law = theory.accepted_distribution(alphas)
    assert sum(law) == pytest.approx(1)
    margin = min(abs(sum(law[k:]) - threshold) for k in range(len(law)))
    if margin > 1e-9:
        assert theory.dynamic_width(alphas, threshold, least) == max(
            [least, *(k for k in range(len(law)) if sum(law[k:]) >= threshold)]
        )


def test_equation_5_is_summed_from_0():
    """The printed sum leaves out that no draw is accepted, so the width comes out too large."""
    assert theory.dynamic_width([0.5, 0.5], 0.9, 1) == 1
    assert theory.dynamic_width([0.5, 0.5], 0.7, 1) == 1
    assert theory.dynamic_width([0.9, 0.9], 0.7, 1) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_draft_that_is_the_target_keeps_its_whole_width(dtype):
    """At threshold 1 with draws from the target itself the width stayed at 2 to 6 of 12.

    Sums in float32 missed 1 by rounding."""
    for seed in range(20):
        logits = torch.randn(4, 4096, generator=torch.Generator().manual_seed(seed)).to(dtype)
        p = Whole(logits.flatten().softmax(-1))
        acceptances = theory.beam_acceptances(theory.Refusals(p, p / p.total), 12)
        assert theory.dynamic_width(acceptances, 1.0, 1) == 12


# ---- MTAD


def test_the_kept_length_has_its_limits():
    assert theory.mtad_kept_length(1.0, 0.1, 4) == 0
    assert theory.mtad_kept_length(0.0, 5.0, 4) == 4
    assert theory.mtad_kept_length(0.5, 0.0, 4) == 4
    assert theory.mtad_kept_length(0.5, math.inf, 4) == 0
    # j U < 1 strictly: j = 4 meets tau and fails it
    assert theory.mtad_kept_length(math.exp(-1), 0.25, 9) == 3
    assert theory.mtad_kept_length(math.exp(-1), 0.24, 9) == 4
    assert theory.mtad_kept_length(0.1, 0.01, 4) == 4


@pytest.mark.parametrize(
    ("p", "batch", "cap"), [(0.3, 1, 4), (0.5, 3, 3), (0.9, 2, 5), (0.0, 2, 3), (1.0, 3, 4)]
)
def test_padding_by_enumeration(p, batch, cap):
    """All outcomes of a batch, each with its probability, against the sums of the closed form."""
    one = {k: p ** (k - 1) * (1 - p) if k < cap else p ** (cap - 1) for k in range(1, cap + 1)}
    ratio = 0.0
    for outcome in itertools.product(one, repeat=batch):
        weight = math.prod(one[k] for k in outcome)
        ratio += weight * (1 - sum(outcome) / batch / max(outcome))
    assert theory.expected_padding(p, batch, cap) == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("alpha", "c", "gamma"), [(0.6, 0.05, 4), (0.7, 0.05, 6), (0.8, 0.05, 8), (0.9, 0.05, 13)]
)
def test_the_best_draft_length(alpha, c, gamma):
    assert theory.best_gamma(alpha, c) == gamma


def test_theorem_3_2_is_the_expectation_for_constant_beta():
    for beta, gamma, t in itertools.product((0.0, 0.3, 1.0), (1, 2, 3), (0.5, 1.0)):
        step = min(beta, t)
        terms = sum(step**k for k in range(gamma + 1))
        assert theory.dsbd_steps(beta, gamma, t) == pytest.approx(terms)
