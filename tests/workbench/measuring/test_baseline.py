import math
from dataclasses import replace

import pytest

from workbench.measuring.baseline import check
from workbench.runs.store import Alternative, TokenRecord


def token(id, *probabilities, shift=0.0):
    """A token whose place lists ids 0, 1, 2, ... with these probabilities, moved by `shift` nats of rounding."""
    likeliest = [Alternative(i, "", p * math.exp(shift)) for i, p in enumerate(probabilities)]
    return TokenRecord(id, 0, "", "sampled", 0, None, None, None, None, None, likeliest)


def test_the_same_tokens_are_identical():
    tokens = [token(0, 0.6, 0.4), token(1, 0.3, 0.7)]
    found = check(tokens, [replace(t, fate="accepted") for t in tokens], "float32")
    assert (found.identical, found.differs_at, found.near_tie) == (True, None, False)


def test_a_gap_within_the_rounding_measured_before_it_is_a_near_tie():
    greedy = [token(0, 0.6, 0.4), token(0, 0.5005, 0.4995)]
    other = [token(0, 0.6, 0.4, shift=0.002), token(1, 0.4995, 0.5005)]
    found = check(greedy, other, "bfloat16")
    assert (found.identical, found.differs_at, found.near_tie, found.dtype) == (False, 1, True, "bfloat16")
    assert found.gap == pytest.approx(math.log(0.5005 / 0.4995))


def test_a_gap_far_above_the_rounding_is_a_difference():
    greedy = [token(0, 0.6, 0.4), token(0, 0.9, 0.1)]
    other = [token(0, 0.6, 0.4, shift=1e-6), token(1, 0.9, 0.1)]
    found = check(greedy, other, "float32")
    assert not found.near_tie
    assert found.gap == pytest.approx(math.log(9))
    assert found.noise == pytest.approx(1e-6, rel=1e-3)


def test_a_token_that_is_not_among_the_likeliest_has_no_gap_and_is_no_tie():
    found = check([token(0, 0.6, 0.4)], [token(9, 0.6, 0.4)], "float32")
    assert (found.differs_at, found.gap, found.near_tie) == (0, None, False)


def test_a_text_that_stops_early_differs_where_it_stops():
    tokens = [token(0, 0.6, 0.4)] * 3
    found = check(tokens, tokens[:2], "float32")
    assert (found.identical, found.differs_at, found.gap, found.near_tie) == (False, 2, None, False)
