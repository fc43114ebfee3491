"""Figures out of results: which belong together, and each beside greedy's."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.runs.figures import places, rows, speed, times_greedy


def test_repeats_stand_together_each_beside_greedy_of_its_seed(run):
    found = rows(run.results)
    assert [(r.label, len(r.results)) for r in found] == [
        ("Greedy", 2), ("Beam search", 2), ("Speculative", 2), ("MTAD", 2), ("DSBD", 2),
    ]  # fmt: skip
    for row in found:
        assert [r.seed for r in row.greedy] == [r.seed for r in row.results]
        assert {r.decoder for r in row.greedy} == {"greedy"}
        assert row.first is row.results[0]


def test_there_is_no_ratio_without_greedy_nor_with_what_failed_was_stopped_or_is_unknown(run):
    greedy, other = run.results[0], run.results[2]
    stopped = replace(other, samples=[replace(other.alone, finished="cancelled")])
    sample_failed = replace(other, samples=[replace(other.alone, error="broken")])
    assert times_greedy(other, None) is None
    failed = replace(other, error="broken")
    for broken in (stopped, sample_failed, failed, replace(other, metrics={})):
        assert times_greedy(broken, greedy) is None
        assert times_greedy(greedy, broken) is None
    for own in (None, 0.0, 5e-324):
        metrics = {"tokens_per_second": own}
        assert times_greedy(other, replace(greedy, metrics=metrics)) is None


def test_a_speed_of_decoding_leaves_out_each_batch_s_first_round(batch_run):
    result = next(r for r in batch_run.results if r.batch_size == 2 and r.decoder == "lookup")
    m = result.metrics
    assert speed(result) == m["tokens_per_second"]
    assert speed(result, decoding=True) == pytest.approx(m["decode_tokens"] / m["decode_seconds"])
    dynamic = next(r for r in batch_run.results if r.scheme == "dynamic")
    assert speed(dynamic, decoding=True) is None


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
