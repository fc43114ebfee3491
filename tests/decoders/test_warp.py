"""Warping against an independent one, on drawn logits with ties."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers.generation import MinPLogitsWarper

from decoders.distribution import Warping, top, warp
from decoders.errors import InputError
from decoders.testing import situations

NEVER = float("-inf")
ROWS = st.lists(
    st.sampled_from([NEVER, -3.0, 0.0, 0.25, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=9
).filter(lambda row: max(row) > NEVER)
WARPINGS = st.builds(
    Warping,
    st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    st.integers(0, 12),
    st.sampled_from([0.01, 0.37, 0.62, 0.9, 1.0]),
    st.sampled_from([0.0, 0.0, 0.04, 0.35, 1.0]),
    st.sampled_from([0.0, 0.0, 0.45, 1.1, 2.3]),
    st.booleans(),
)


@given(ROWS, WARPINGS)
def test_it_is_temperature_top_n_sigma_top_k_top_p_and_min_p(row, warping):
    """Or the temperature last."""
    if warping.top_p < 1 and warping.temperature:
        seen = 1.0 if warping.temperature_last else warping.temperature
        before = replace(warping, temperature=seen, top_p=1.0, min_p=0.0)
        whole = np.sort(situations.warp(row, before))[::-1]
        # where a sum meets p exactly, rounding decides
        assume(np.abs(whole.cumsum() - warping.top_p).min() > 1e-9)
    probs = warp(torch.tensor(row, dtype=torch.float64), warping)
    assert probs.numpy() == pytest.approx(situations.warp(row, warping), abs=1e-12)
    assert probs.sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tiny", [1e-40, 1e-46, 5e-324])
def test_settings_smaller_than_the_type_can_hold(tiny, dtype):
    """Below 1e-45 a temperature or top_p is 0 in float32: nothing was left to draw from, and that
    ended in an IndexError."""
    logits = torch.tensor([0.5, 2.0, -1.0, NEVER], dtype=dtype)
    for warping in (Warping(tiny), Warping(1.0, top_p=tiny), Warping(tiny, 2, tiny)):
        assert warp(logits, warping).tolist() == [0, 1, 0, 0]


@given(ROWS, st.floats(0.1, 3.0))
def test_top_k_1_and_temperature_0_are_the_argmax_ties_to_the_lowest_id(row, temperature):
    logits = torch.tensor(row, dtype=torch.float64)
    one_hot = torch.eye(len(row), dtype=torch.float64)[row.index(max(row))]
    assert warp(logits, Warping(temperature, top_k=1)).equal(one_hot)
    assert warp(logits, Warping(0.0)).equal(one_hot)
    assert warp(logits, Warping(temperature, top_p=1e-9)).equal(one_hot)


def test_the_token_that_crosses_p_is_kept():
    logits = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    assert warp(logits, Warping(top_p=0.6)).tolist() == pytest.approx([0.625, 0.375, 0])
    assert warp(logits, Warping(top_p=0.49)).tolist() == pytest.approx([1, 0, 0])


@given(
    st.lists(st.tuples(*[st.sampled_from([NEVER, 0.0, 1.0])] * 3), min_size=1, max_size=7),
    st.data(),
)
def test_the_top_of_several_rows_is_that_of_a_stable_sort(columns, data):
    scaled = torch.tensor(columns).T
    k = data.draw(st.integers(1, len(columns) + 2))  # beams may ask for more than there are
    values, ids = scaled.sort(dim=-1, descending=True, stable=True)
    ours = top(scaled, k)
    assert ours[0].equal(values[:, :k])
    assert ours[1].equal(ids[:, :k])


@given(ROWS, st.sampled_from([0.3, 1.0, 1.7]), st.sampled_from([0.01, 0.04, 0.35, 0.9, 1.0]))
def test_min_p_is_that_of_transformers(row, temperature, min_p):
    scaled = torch.tensor(row, dtype=torch.float64) / temperature
    theirs = MinPLogitsWarper(min_p)(None, scaled[None])[0].softmax(-1)
    assert warp(scaled, Warping(min_p=min_p)).tolist() == pytest.approx(theirs.tolist(), abs=1e-12)


@given(ROWS, st.sampled_from([0.1, 0.9, 1.0, 1.5, 2.2]), st.sampled_from([0.2, 0.5, 3.0]))
def test_top_n_sigma_keeps_the_same_tokens_at_any_temperature(row, n, temperature):
    """Those within n standard deviations of the highest; impossible tokens do not count."""
    finite = [x for x in row if x > NEVER]
    mean = sum(finite) / len(finite)
    sigma = (sum((x - mean) ** 2 for x in finite) / len(finite)) ** 0.5
    assume(min(abs(max(row) - n * sigma - x) for x in finite) > 1e-9 or not sigma)
    kept = [x >= max(row) - n * sigma for x in row]
    for t in (1.0, temperature):
        warping = Warping(t, top_n_sigma=n)
        assert (warp(torch.tensor(row, dtype=torch.float64), warping) > 0).tolist() == kept


def test_where_the_order_of_temperature_counts():
    """At T=2 the second token reaches a fifth of the first only if min-p sees it heated."""
    logits = torch.tensor([0.0, -2.0, -9.0], dtype=torch.float64)
    assert (warp(logits, Warping(2.0, min_p=0.2)) > 0).tolist() == [True, True, False]
    last = warp(logits, Warping(2.0, min_p=0.1, temperature_last=True))
    assert last.tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1)), 0])
    assert warp(logits, Warping(2.0, min_p=0.2, temperature_last=True)).tolist() == [1, 0, 0]


def test_ties_at_the_edge_of_top_k_go_to_the_lower_id():
    assert warp(
        torch.tensor([1.0, 2.0, 1.0, 1.0]), Warping(top_k=2)
    ).nonzero().flatten().tolist() == [0, 1]


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=2, max_size=4), WARPINGS
)
def test_rows_are_warped_one_by_one(rows, warping):
    logits = torch.tensor(rows, dtype=torch.float64)
    assert warp(logits, warping).equal(torch.stack([warp(row, warping) for row in logits]))


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ((-1.0,), "temperature"),
        ((float("nan"),), "temperature"),
        ((1.0, -1), "top_k"),
        ((1.0, 1.5), "top_k"),
        ((1.0, 0, 0.0), "top_p"),
        ((1.0, 0, 1.1), "top_p"),
        ((1.0, 0, 1.0, 1.5), "min_p must be"),
        ((1.0, 0, 1.0, 0.0, -1), "top_n_sigma must be"),
        ((1.0, 0, 1.0, 0.0, 0.0, "yes"), "temperature_last must be"),
    ],
)
def test_values_out_of_range_are_refused_by_name(values, names):
    with pytest.raises(InputError, match=names):
        Warping(*values)
