"""What kernels leave of a row is what a plain sort leaves, in a time that follows its length."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.needs import needs_kernels
from tests.rows import CUTS, SHAPES, left, row_of

pytestmark = needs_kernels
# Counts how often a number of a row is looked at.
COUNT = """
import numpy as np
from decoders.engine.kernels.select import weigh
from decoders.engine.kernels.select import find
from tests.rows import SHAPES, row_of

class Counted(np.ndarray):
    looks = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        Counted.looks += np.size(found)
        return found

def looks(run, row, *others):
    Counted.looks = 0
    run(row.view(Counted), *others)
    return Counted.looks / row.size

SIZE, MANY = 2048, 100
values, ids, masses = np.empty((1, MANY), np.float32), np.empty((1, MANY), np.int64), np.empty(SIZE)
for shape in SHAPES:
    row = row_of(shape, SIZE, 3)
    print(shape, "likeliest", looks(find, row[None], values, ids))
    for top_p in (0.5, 0.9, 0.99):
        print(shape, top_p, looks(weigh, row, np.array([0.7, 0.0, top_p, 0.0]), masses))
"""


@pytest.fixture(scope="module")
def weigh():
    from decoders.engine.kernels.select import weigh

    return weigh


@given(st.sampled_from([*SHAPES]), st.integers(1, 3000), st.integers(0, 10**6), CUTS)
@settings(deadline=None, max_examples=80)
def test_a_nucleus_is_that_of_a_sort(weigh, shape, size, seed, cuts):
    """Guesses held at most 64 tokens: of a flat row, which has thousands, nearly all were wrong."""
    (temperature, top_p, min_p), row, masses = cuts, row_of(shape, size, seed), np.empty(size)
    expected, margin = left(row, *cuts)
    weigh(row, np.array([temperature, 0.0, top_p, min_p]), masses)
    if margin > 1e-12:
        assert (masses > 0).tolist() == (expected > 0).tolist()
        assert masses == pytest.approx(expected, rel=1e-12)


@given(st.sampled_from([*SHAPES]), st.integers(1, 2000), st.integers(0, 10**6), CUTS)
@settings(deadline=None)
def test_top_k_before_top_p(weigh, shape, size, seed, cuts):
    (temperature, top_p, min_p), row, masses = cuts, row_of(shape, size, seed), np.empty(size)
    top_k = 1 + seed % 256
    first = sorted(range(size), key=lambda i: (-row[i], i))[:top_k]
    known = np.full(size, -np.inf, np.float32)
    known[first] = row[first]
    expected, margin = left(known, *cuts)
    weigh(row, np.array([temperature, top_k, top_p, min_p]), masses)
    if margin > 1e-12:
        assert (masses > 0).tolist() == (expected > 0).tolist()
        assert masses == pytest.approx(expected, rel=1e-12)


def test_no_row_takes_its_length_times_what_is_kept():
    """An insertion sort looked 200 times at each number of a rising row for its 200 likeliest ones,
    and 23 times where they lay as they come."""
    environ = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    run = subprocess.run(
        [sys.executable, "-c", COUNT], env=environ, capture_output=True, text=True, check=True
    )
    looks = {line.rpartition(" ")[0]: float(line.split()[-1]) for line in run.stdout.splitlines()}
    assert len(looks) == 4 * len(SHAPES)
    assert max(looks.values()) < 16, looks
