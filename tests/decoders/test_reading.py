"""Readings agree with their row; small distributions equal whole ones."""

import math
import time
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders.distribution import Small, Warping, Whole, warp
from decoders.engine.kernels.loading import scan_for
from decoders.reading import Readings
from decoders.testing import situations
from tests.pieces import last_of_equals

NEVER = float("-inf")
ROWS = st.lists(
    st.sampled_from([NEVER, -3.0, 0.0, 0.25, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=12
).filter(lambda row: max(row) > NEVER)
WARPINGS = st.builds(
    Warping, st.sampled_from([0.0, 0.3, 1.0, 1.7, 1e-46, 5e-324]), st.integers(0, 14),
    st.sampled_from([5e-324, 0.01, 0.37, 0.62, 0.9, 1.0]),
    st.sampled_from([0.0, 0.0, 0.04, 0.35, 1.0]), st.sampled_from([0.0, 0.0, 0.0, 1.1]),
    st.booleans(),
)  # fmt: skip


@given(ROWS, WARPINGS, st.integers(0, 13), st.floats(0, 1, exclude_max=True), st.booleans())
def test_small_distributions_equal_whole_ones(row, warping, likeliest, u, every):
    """Any part of a row may be read; if it does not hold the distribution, the reading is whole."""
    if warping.top_p < 1 and warping.temperature:
        seen = 1.0 if warping.temperature_last else warping.temperature
        before = replace(warping, temperature=seen, top_p=1.0, min_p=0.0)
        likely = sorted(situations.warp(row, before), reverse=True)
        sums = [sum(likely[: i + 1]) for i in range(len(likely))]
        # where a sum meets p exactly, rounding decides
        assume(min(abs(s - warping.top_p) for s in sums) > 1e-9)
    logits = torch.tensor(row, dtype=torch.float64)
    found = next(iter(Readings(logits[None], likeliest, every=every))).warp(warping)
    whole = warp(logits, warping)
    assert [found[x] for x in range(len(row))] == pytest.approx(whole.tolist(), abs=1e-12)
    cumulative = whole.cumsum(-1)
    if (cumulative - u).abs().min() > 1e-9:
        assert found.draw([u]) == Whole(whole).draw([u])


@given(ROWS, st.integers(0, 13), st.integers(1, 14), st.booleans())
def test_the_likeliest_are_those_of_a_stable_sort(row, likeliest, count, every):
    """Also where `torch.topk` takes others of equal logits."""
    logits = torch.tensor(row, dtype=torch.float64)
    with mock.patch.object(torch.Tensor, "topk", last_of_equals):
        ids, values = next(iter(Readings(logits[None], likeliest, every=every))).likeliest(count)
    expected = logits.sort(descending=True, stable=True)
    finite = sum(x > NEVER for x in expected.values[:count].tolist())
    assert values == expected.values[:count].tolist()
    assert ids[:finite] == expected.indices[:finite].tolist()


def test_likeliest_tokens_are_those_of_the_rows_asked_for_alone():
    """A row of another request, with some logits that are not numbers, ended the whole batch."""
    rows = torch.tensor([[1.0, 3.0, 3.0, *[0.0] * 7], [*[math.nan] * 3, *[5.0] * 3, *[-9.0] * 4]])
    readings = Readings(rows, 5, every=True)
    assert next(iter(readings)).likeliest()[0][0] == 1
    assert readings.sound(slice(0, 1))
    assert not readings.sound(slice(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_flat_row_is_not_sorted(dtype):
    """It took 50 times as long as a peaked one of 64 tokens, and takes three times as long."""
    flat = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    peaked = flat.clone()
    peaked[77] += 20

    def warped(row):
        return next(iter(Readings(row[None], 64, scan=scan_for(row[None])))).warp(
            Warping(1.0, top_p=0.9)
        )

    def least(row):
        took = []
        for _ in range(20):
            began = time.perf_counter()
            warped(row)
            took.append(time.perf_counter() - began)
        return min(took)

    assert isinstance(warped(peaked), Small)
    assert isinstance(warped(flat), Whole)
    assert least(flat) < 15 * least(peaked)
