"""Rows of logits are looked through in the same way by numpy and torch and by compiled kernels."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoders.distribution import PLAIN, fetched
from decoders.engine.kernels.loading import kernels, scan_for
from tests.needs import needs_kernels
from tests.rows import CUTS, SHAPES, left, row_of

COMPILED = getattr(kernels(), "scan", None)
EACH = pytest.mark.parametrize(
    "scan",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(COMPILED, id="compiled", marks=needs_kernels),
    ],
)
NEVER = float("-inf")
LOGITS = st.one_of(
    st.floats(-50, 50, width=32), st.sampled_from([NEVER, -1e30, 0.0, 0.5, 0.5, 3.0])
)


def rows_of(*rows):
    return np.array(rows, dtype=np.float32)


@EACH
@given(st.lists(LOGITS, min_size=1, max_size=40).filter(lambda x: max(x) > NEVER), st.data())
@settings(deadline=None)
def test_the_likeliest_fall_and_none_is_above_them(scan, row, data):
    count = data.draw(st.integers(1, len(row)))
    values, ids = scan.likeliest(rows_of(row, row[::-1]), count)
    for found, places, given_row in zip(values, ids, (row, row[::-1]), strict=True):
        assert found.tolist() == sorted(rows_of(row)[0].tolist(), reverse=True)[:count]
        assert len(set(places.tolist())) == count
        assert [np.float32(given_row[i]) for i in places] == found.tolist()
        if count == 1:
            assert places[0] == given_row.index(max(given_row))


@needs_kernels
@given(st.integers(1, 3000), st.integers(1, 80), st.integers(1, 2000), st.integers(0, 99))
@settings(deadline=None)
def test_of_equals_kernels_find_the_lower_ids(size, count, kinds, seed):
    """They look through long rows by columns, so not in the order of ids."""
    levels = np.random.default_rng(seed).integers(0, kinds, size)
    row, count = np.where(levels, levels, NEVER).astype(np.float32), min(count, size)
    values, ids = COMPILED.likeliest(row[None], count)
    expected = sorted(range(size), key=lambda i: (-row[i], i))[:count]
    assert ids[0].tolist() == expected
    assert values[0].tolist() == row[expected].tolist()


@EACH
@given(
    st.lists(LOGITS, min_size=1, max_size=40).filter(lambda x: max(x) > NEVER),
    st.sampled_from([1.0, 0.3, 1.7, 100.0, 1e-30, 1e-46, 5e-324]),
)
@settings(deadline=None)
def test_the_sum_is_that_of_float64(scan, row, temperature):
    (found,) = scan.excesses(rows_of(row), np.array([max(row)]), temperature)
    # a temperature below float32's least normal number counts as that
    least = max(temperature, float(np.finfo(np.float32).tiny))
    assert found == pytest.approx(
        math.log(sum(math.exp((x - max(row)) / least) for x in row)), abs=2e-6
    )


@EACH
@pytest.mark.parametrize("count", [1, 3, 64, 65, 200])
def test_the_result_for_a_row_depends_on_this_row_alone(scan, count):
    """Or a request's tokens would depend on the others of its batch."""
    rows = np.random.default_rng(0).normal(size=(9, 4096)).astype(np.float32)
    values, ids = scan.likeliest(rows, count)
    sums = scan.excesses(rows, values[:, 0].astype(float), 0.8)
    for i in range(9):
        alone = scan.likeliest(rows[i : i + 1], count)
        assert alone[0].tolist() == values[i : i + 1].tolist()
        assert alone[1].tolist() == ids[i : i + 1].tolist()
        highest = alone[0][:, 0].astype(float)
        assert scan.excesses(rows[i : i + 1], highest, 0.8) == sums[i]


@EACH
@given(st.sampled_from([*SHAPES]), st.integers(1, 4000), st.integers(0, 10**6), CUTS, st.booleans())
@settings(deadline=None, max_examples=200)
def test_a_nucleus_is_that_of_a_sort(scan, shape, size, seed, cuts, last):
    """Of equals the lower ids stay; top-p and min-p may see the probabilities at temperature 1."""
    (temperature, *limits), row = cuts, row_of(shape, size, seed)
    seen = 1.0 if last else temperature
    expected, margin = left(row, seen, *limits)
    found = scan.nucleus(row, temperature, seen, *limits)
    assert found.dtype == np.float32
    if margin > 1e-5:  # float32 rounds in more places than that
        stay = expected > 0
        masses = np.exp((row.astype(float) - float(row.max())) / temperature) * stay
        assert ((found > 0) == stay)[masses > 1e-30].all()
        assert found == pytest.approx(masses / masses.sum(), rel=1e-5, abs=1e-30)


@EACH
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("place", [0, 1, 4])
def test_what_is_no_number_comes_first(scan, count, place):
    row = [0.0, 1.0, 2.0, 1.0, 0.5]
    row[place] = math.nan
    values, _ = scan.likeliest(rows_of(row, [0.0, 1.0, 2.0, 1.0, 0.5]), count)
    assert math.isnan(values[0, 0])
    assert values[1, 0] == 2


@EACH
@pytest.mark.parametrize("count", [1, 6, 64])
@pytest.mark.parametrize("strange", [[0], [300], [0, 255, 256], range(256), range(1000)])
def test_of_a_long_row_too(scan, count, strange):
    """Ids stay within the row, or kernels would read beyond it."""
    row = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    row[list(strange)] = np.nan
    values, ids = scan.likeliest(row[None], count)
    assert math.isnan(values[0, 0])
    assert all(0 <= i < 1000 for i in ids[0].tolist())


def test_which_rows_kernels_look_through():
    rows = torch.zeros(4, 6)
    # Other tests may have made the kernels anew.
    assert type(scan_for(rows)) is type(COMPILED or PLAIN)
    assert scan_for(rows.double()) is scan_for(rows.T) is scan_for(rows.bfloat16()) is PLAIN


def test_rows_of_a_device_are_read_alike():
    """In one transfer; here both lie on the host."""
    rows = torch.randn(4, 30, generator=torch.Generator().manual_seed(2))
    found = fetched(rows, 3, {0.0, 0.7})
    values, ids = PLAIN.likeliest(rows.numpy(), 3)
    assert (found.logits == values).all()
    assert (found.ids == ids).all()
    assert found.excesses.keys() == {1.0, 0.7}
    for temperature, sums in found.excesses.items():
        expected = PLAIN.excesses(rows.numpy(), values[:, 0], temperature)
        assert sums == pytest.approx(expected, abs=1e-5)
