"""The roofline model, and the flags for draft lengths by load."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.theory.roofline import Roof, Size, Sizes
from workbench.theory.schedules import schedule, vllm_flag

ROOF = Roof(bandwidth=100.0, operations=1000.0)
PAIR = Sizes(Size(weights=100, bytes=200), Size(weights=10, bytes=20))


def test_few_tokens_cost_the_reading_and_many_the_computing():
    model = PAIR.target
    assert model.seconds(ROOF, 1, 1) == 2.0
    assert model.seconds(ROOF, 10, 1) == 2.0  # 2 * 100 * 10 operations
    assert model.seconds(ROOF, 10, 3) == 6.0


def test_every_request_has_its_cache_read():
    model = Size(weights=100, bytes=200, cache=50)
    assert model.seconds(ROOF, 4, 1) == 4.0
    assert model.seconds(ROOF, 4, 2) == 4.0  # more tokens of a request read no more


def test_verifying_is_free_while_reading_takes_longer_and_then_costs_its_tokens():
    alone, crowd = PAIR.ratio(ROOF, 1, 3), PAIR.ratio(ROOF, 100, 3)
    assert alone == pytest.approx(1 + 3 * 0.1)
    assert crowd == pytest.approx(4 + 3 * 0.1)


def looked_up(ranges: list[tuple[int, int, int]], load: int) -> int:
    """As vLLM reads a schedule: gaps and the end have the length before them."""
    return [length for first, _, length in ranges if first <= load][-1]


@given(st.dictionaries(st.integers(1, 300), st.integers(0, 8), min_size=1, max_size=6))
def test_a_schedule_has_every_load_and_its_length(lengths):
    ranges = schedule(lengths)
    assert ranges[0][0] == 1
    assert all(first <= last for first, last, _ in ranges)
    assert all(a[1] < b[0] and a[2] != b[2] for a, b in pairwise(ranges))
    assert {load: looked_up(ranges, load) for load in lengths} == lengths


def test_the_flag_of_vllm_is_json_with_a_schedule_only_if_lengths_differ():
    def said(lengths: dict[int, int]) -> dict:
        name, _, text = vllm_flag(lengths).partition(" ")
        assert name == "--speculative-config"
        return json.loads(text.strip("'"))

    assert said({1: 3, 8: 3}) == {"num_speculative_tokens": 3}
    assert said({1: 4, 8: 2, 16: 0}) == {
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 7, 4], [8, 15, 2], [16, 16, 0]],
    }
