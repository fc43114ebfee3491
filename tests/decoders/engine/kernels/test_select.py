"""What kernels leave of a row is what a plain sort leaves, in a time that follows its length."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.needs import needs_kernels
from tests.pairwise import EVERYWHERE
from tests.rows import CUTS, SHAPES, SIZES, left, row_of

pytestmark = needs_kernels
TOP_K = st.integers(1, 256)


@pytest.fixture(scope="module")
def weigh():
    from decoders.engine.kernels.select import weigh

    return weigh


@given(st.sampled_from([*SHAPES]), SIZES, st.integers(0, 10**6), CUTS, st.just(0) | TOP_K)
@settings(deadline=None, max_examples=100 if EVERYWHERE else 15)
def test_a_nucleus_is_that_of_a_sort(weigh, shape, size, seed, cuts, top_k):
    """Guesses held at most 64 tokens: of a flat row, which has thousands, nearly all were wrong.

    Top-k goes before top-p."""
    (temperature, top_p, min_p), row, masses = cuts, row_of(shape, size, seed), np.empty(size)
    known = np.full(size, -np.inf, np.float32)
    first = np.argsort(-row, kind="stable")[: top_k or size]
    known[first] = row[first]
    expected, margin = left(known, *cuts)
    weigh(row, np.array([temperature, top_k, top_p, min_p]), masses)
    if margin > 1e-12:
        assert (masses > 0).tolist() == (expected > 0).tolist()
        assert masses == pytest.approx(expected, rel=1e-12)


def test_no_row_takes_its_length_times_what_is_kept(weigh):
    """An insertion sort looked 200 times at each number of a rising row for its 200 likeliest ones,
    and 23 times where they lay as they come."""
    from decoders.engine.kernels.select import find

    size, many = 30_000, 100
    values, ids = np.empty((1, many), np.float32), np.empty((1, many), np.int64)
    masses, times = np.empty(size), {}
    for shape in SHAPES:
        row = row_of(shape, size, 3)
        times["likeliest", shape] = least(find, row[None], values, ids)
        for top_p in (0.5, 0.9, 0.99):
            times[top_p, shape] = least(weigh, row, np.array([0.7, 0.0, top_p, 0.0]), masses)
    for part, shape in times:
        assert times[part, shape] < 5 * times[part, "peaked"], (part, shape, times)


def least(run, *arguments) -> float:
    """The least of the thread's own seconds."""
    took = []
    for _ in range(9):
        began = time.thread_time()
        run(*arguments)
        took.append(time.thread_time() - began)
    return min(took)
