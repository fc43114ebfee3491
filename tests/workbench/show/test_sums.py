"""Statements about rounded figures are true of the figures as shown."""

import math

from hypothesis import given
from hypothesis import strategies as st

from workbench.show.quantities import enough, gives, megabytes, percent, significant, two_decimals

CHANCES = st.floats(1e-6, 1)


def operands(p: float, q: float, result: str) -> list[str]:
    return enough(
        lambda a, b: gives(result, a / b),
        lambda more: significant(p, more),
        lambda more: significant(q, more),
    )


@given(CHANCES, CHANCES)
def test_a_reader_who_divides_finds_the_result(p, q):
    result = percent(p / q)
    a, b = operands(p, q, result)
    assert abs(float(a) / float(b) - p / q) <= 0.0051
    assert gives(result, float(a) / float(b))


def test_a_digit_more_is_shown_only_where_it_must_be():
    """ "0.538 / 0.645 = 84%" is 83% for those who divide."""
    assert operands(0.5384, 0.6447, "84%") == ["0.5384", "0.6447"]
    assert operands(0.5, 0.625, "80%") == ["0.5", "0.625"]


@given(CHANCES, CHANCES)
def test_what_is_less_shows_as_less(a, b):
    x, y = enough(
        lambda x, y: (x < y) == (a < b),
        lambda more: percent(a, more),
        lambda more: significant(b, more),
    )
    assert (float(x[:-1]) / 100 < float(y)) == (a < b) or math.isclose(a, b, rel_tol=1e-6)


def test_numbers_are_read_as_they_are_shown():
    assert gives("1,146 MB", 1146.4)
    assert not gives("1,146 MB", 1146.6)
    assert gives("≈84%", 0.8449)
    assert not gives("84%", 0.8451)
    assert gives("1.2e-05", 1.24e-05)
    assert gives("–", 3)
    # no digits help
    assert enough(lambda s: gives("533", 64 / s), lambda more: two_decimals(0.004, more)) == [
        "0.00"
    ]
    assert enough(lambda a: gives("17.9", a / 64), lambda more: megabytes(1_146_000_000, more)) == [
        "1,146 MB"
    ]
