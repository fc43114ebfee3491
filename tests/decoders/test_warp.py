"""Warping against an independent one, on drawn logits with ties."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders.errors import InputError
from decoders.testing import situations
from decoders.warp import Warping, top, warp

NEVER = float("-inf")
ROWS = st.lists(
    st.sampled_from([NEVER, -3.0, 0.0, 0.25, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=9
).filter(lambda row: max(row) > NEVER)
WARPINGS = st.builds(
    Warping,
    st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    st.integers(0, 12),
    st.sampled_from([0.01, 0.37, 0.62, 0.9, 1.0]),
)


@given(ROWS, WARPINGS)
def test_it_is_temperature_then_top_k_then_top_p(row, warping):
    if warping.top_p < 1 and warping.temperature:
        whole = np.sort(situations.warp(row, Warping(warping.temperature, warping.top_k)))[::-1]
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
    ],
)
def test_values_out_of_range_are_refused_by_name(values, names):
    with pytest.raises(InputError, match=names):
        Warping(*values)
