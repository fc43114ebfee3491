"""The number of threads: the quickest by measurement, on made-up timings."""

import pytest
import torch

from decoders import InputError
from workbench.measuring.device import candidates, chosen, quickest


def test_candidates_are_powers_of_two_and_all_cores():
    assert [candidates(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_more_threads_must_be_clearly_quicker():
    assert quickest([1, 2], lambda count, _: {1: 1.0, 2: 0.6}[count]).count == 2
    assert quickest([1, 2], lambda count, _: {1: 1.0, 2: 0.98}[count]).count == 1


def test_a_hopeless_number_is_tried_once():
    """Beside another program, two OpenMP threads on two cores took 160 ms for 4 ms of work."""
    tried = []

    def seconds(count: int, limit: float) -> float:
        tried.append((count, limit))
        return {1: 1.0, 2: 40.0}[count]

    found = quickest([1, 2], seconds)
    assert found.count == 1
    assert [count for count, _ in tried].count(2) == 1
    assert tried[1] == (2, 2.0)  # it may give up after twice the best
    assert "40000.0 ms with 2" in found.reason


def test_one_odd_timing_does_not_decide():
    odd = {1: iter([1.0] * 5), 2: iter([1.9, 0.5, 0.5, 0.5, 0.5])}
    assert quickest([1, 2], lambda count, _: next(odd[count])).count == 2


def test_the_variable_overrides(pair):
    found = chosen(pair, {"WORKBENCH_THREADS": " 2 "})
    assert (found.count, "WORKBENCH_THREADS" in found.reason) == (2, True)
    for text in ("many", "0", "-1"):
        with pytest.raises(InputError, match="WORKBENCH_THREADS"):
            chosen(pair, {"WORKBENCH_THREADS": text})


def test_measuring_leaves_the_number_as_it_was(pair):
    before = torch.get_num_threads()
    found = chosen(pair, {})
    assert found.count >= 1
    assert torch.get_num_threads() == before
