"""Figures out of results: which belong together, and each beside greedy's."""

from dataclasses import replace

import pytest

from workbench.runs.figures import rows, speed, times_greedy


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
