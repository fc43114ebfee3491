"""The totals over the requests of a job."""

import pytest

from workbench.measuring.job import PromptState, Times, most_at_once, totals
from workbench.runs.record import Energy

NONE = Energy(None, "not measured: a test")


def test_overlapping_requests_are_counted():
    assert most_at_once([(0, 2), (1, 3), (2, 4)]) == 2
    assert most_at_once([(0, 1)] * 3) == 3
    assert most_at_once([]) == 0


def test_a_batch_s_first_round_reads_the_prompts_and_is_left_out_of_decoding():
    times = Times(began=10.0, ends=[12.0, 13.0, 15.0], rounds=3, at_once=2)
    assert (times.whole, times.after_first, times.each) == (5.0, 3.0, [2.0, 1.0, 2.0])
    nothing = Times(10.0, [], 0, 0)
    assert (nothing.whole, nothing.after_first, nothing.each) == (0.0, 0.0, [])


@pytest.mark.parametrize("requests", [[], ["unfinished"]])
def test_a_job_that_broke_down_at_once_has_the_names_and_no_figures(requests):
    found = totals([PromptState(i) for i, _ in enumerate(requests)], [], True, NONE)
    assert {"seconds", "new_tokens", "perplexity", "decode_seconds", "at_once"} <= set(found)
    assert set(found.values()) == {None}
