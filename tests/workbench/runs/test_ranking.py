"""Places of ranges: those that overlap share one."""

import math

from hypothesis import given
from hypothesis import strategies as st

from workbench.runs.figures import places

ENDS = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda ends: (min(ends), max(ends)))


@given(st.lists(ENDS, max_size=9))
def test_ranges_that_overlap_share_a_place_and_all_others_follow_each_other(ranges):
    found = places(ranges)
    for (low, high), place in zip(ranges, found, strict=True):
        before = [other for other, at in zip(ranges, found, strict=True) if at < place]
        assert place == 1 + len(before)
        assert all(end < low for _, end in before)
        assert all(
            at == place for (a, b), at in zip(ranges, found, strict=True) if a <= high and low <= b
        )


def test_one_that_may_lie_anywhere_leaves_no_places():
    assert places([(1, 2), (3, 4), (0, math.inf)]) == [1, 1, 1]
    assert places([(3, 4), (1, 2), (3.5, 5)]) == [2, 1, 2]
