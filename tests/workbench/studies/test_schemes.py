"""Schemes: their differences and names."""

import pytest

from workbench.studies.study import SCHEMES, baseline_scheme, batches, scheme_label, schemes_at


def test_the_last_batch_is_filled_up_from_the_start():
    assert batches("abcde", 3) == [["a", "b", "c"], ["d", "e", "a"]]
    assert batches("ab", 5) == [["a", "b", "a", "b", "a"]]


def test_alone_all_schemes_are_one():
    assert schemes_at(1, list(SCHEMES)) == ["unpadded"]
    assert schemes_at(2, ["vanilla", "dynamic"]) == ["vanilla", "dynamic"]


def test_greedy_pads_nothing_so_all_static_schemes_are_one_for_it():
    assert {baseline_scheme(name) for name, scheme in SCHEMES.items() if scheme.static} == {
        "unpadded"
    }
    assert baseline_scheme("dynamic") == "dynamic"


@pytest.mark.parametrize(
    ("row", "label"),
    [
        (("lookup", 1, "unpadded"), "alone"),
        (("greedy", 2, "unpadded"), "static"),
        (("greedy", 2, "dynamic"), "dynamic"),
        (("lookup", 2, "unpadded_kv"), "unpadded cache"),
    ],
)
def test_a_scheme_is_called_by_what_it_is_there(row, label):
    assert scheme_label(*row) == label
