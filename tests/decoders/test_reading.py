"""Readings agree with their row; small distributions equal whole ones."""

import math
import time
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders.distribution import Small, Warping, Whole, warp
from decoders.engine.kernels.loading import scan_for
from decoders.reading import Readings, held
from decoders.testing import situations
from tests.pieces import last_of_equals

NEVER = float("-inf")
ROWS = st.lists(
    st.sampled_from([NEVER, -3.0, 0.0, 0.25, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=12
).filter(lambda row: max(row) > NEVER)
WARPINGS = st.builds(
    Warping,
    st.sampled_from([0.0, 0.3, 1.0, 1.7, 1e-46, 5e-324]),
    st.integers(0, 14),
    st.sampled_from([5e-324, 0.01, 0.37, 0.62, 0.9, 1.0]),
    st.sampled_from([0.0, 0.0, 0.04, 0.35, 1.0]),
    st.sampled_from([0.0, 0.0, 0.0, 1.1]),
    st.booleans(),
)


@given(ROWS, WARPINGS, st.integers(0, 13), st.floats(0, 1, exclude_max=True), st.booleans())
def test_small_distributions_equal_whole_ones(row, warping, likeliest, u, every):
    """Any part of a row may be read; if it does not hold the distribution, the reading is whole."""
    if warping.top_p < 1 and warping.temperature:
        seen = 1.0 if warping.temperature_last else warping.temperature
        before = replace(warping, temperature=seen, top_p=1.0, min_p=0.0)
        likely = sorted(situations.warp(row, before), reverse=True)
        sums = [sum(likely[: i + 1]) for i in range(len(likely))]
        # where a sum meets p exactly, rounding decides
        assume(min(abs(s - warping.top_p) for s in sums) > 1e-9)
    logits = torch.tensor(row, dtype=torch.float64)
    found = Readings(logits[None], likeliest, every=every)[0].warp(warping)
    whole = warp(logits, warping)
    assert [found[x] for x in range(len(row))] == pytest.approx(whole.tolist(), abs=1e-12)
    cumulative = whole.cumsum(-1)
    if (cumulative - u).abs().min() > 1e-9:
        assert found.draw([u]) == Whole(whole).draw([u])


@given(ROWS, st.integers(0, 13), st.integers(1, 14), st.booleans())
def test_the_likeliest_are_those_of_a_stable_sort(row, likeliest, count, every):
    """Also where `torch.topk` takes others of equal logits."""
    logits = torch.tensor(row, dtype=torch.float64)
    with mock.patch.object(torch.Tensor, "topk", last_of_equals):
        ids, values = Readings(logits[None], likeliest, every=every)[0].likeliest(count)
    expected = logits.sort(descending=True, stable=True)
    finite = sum(x > NEVER for x in expected.values[:count].tolist())
    assert values == expected.values[:count].tolist()
    assert ids[:finite] == expected.indices[:finite].tolist()


class OnDevice(torch.Tensor):
    """A tensor that claims to be on a GPU and counts copies to the host."""

    device = torch.device("cuda")
    sent = 0

    def cpu(self):
        OnDevice.sent += 1
        return super().cpu().as_subclass(torch.Tensor)

    def item(self):
        OnDevice.sent += 1
        return super().item()

    def tolist(self):
        OnDevice.sent += 1
        return super().tolist()


@pytest.mark.parametrize(
    "warping", [Warping(0), Warping(0.8, 20, 0.9), Warping(0.8, 0, 0.3), Warping(1.0, 20)]
)
def test_a_pass_is_sent_to_the_host_once(warping):
    """Whatever a decoder then asks about possible tokens, and the trace about alternatives."""
    rows = 3 * torch.randn(3, 500, generator=torch.Generator().manual_seed(0))
    OnDevice.sent = 0
    readings = Readings(rows.as_subclass(OnDevice), max(5, held(warping)), {warping.temperature})
    for reading, row in zip(readings, rows, strict=True):
        found = reading.warp(warping)
        assert [found[x] for x in range(500)] == pytest.approx(
            warp(row, warping).tolist(), abs=1e-6
        )
        (token,) = found.draw([0.5])
        assert reading.log_p(token) == pytest.approx(row.log_softmax(-1)[token].item(), abs=1e-5)
        assert reading.likeliest(5)[0] == row.topk(5).indices.tolist()
    assert OnDevice.sent == 1
    likeliest = rows[0].topk(300).indices.tolist()
    assert readings[0].log_p(likeliest[-1]) == pytest.approx(
        rows[0].log_softmax(-1)[likeliest[-1]].item(), abs=1e-5
    )
    assert OnDevice.sent == 2


def test_likeliest_tokens_are_those_of_the_rows_asked_for_alone():
    """A row of another request, with some logits that are not numbers, ended the whole batch."""
    rows = torch.tensor([[1.0, 3.0, 3.0, *[0.0] * 7], [*[math.nan] * 3, *[5.0] * 3, *[-9.0] * 4]])
    readings = Readings(rows, 5, every=True)
    assert readings[0].best == 1
    assert readings.sound(slice(0, 1))
    assert not readings.sound(slice(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_flat_row_is_not_sorted(dtype):
    """It took 50 times as long as a peaked one of 64 tokens, and takes three times as long."""
    flat = torch.randn(100_000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    peaked = flat.clone()
    peaked[77] += 20

    def warped(row):
        return Readings(row[None], 64, scan=scan_for(row[None]))[0].warp(Warping(1.0, top_p=0.9))

    def least(row):
        took = []
        for _ in range(20):
            began = time.perf_counter()
            warped(row)
            took.append(time.perf_counter() - began)
        return min(took)

    assert isinstance(warped(peaked), Small)
    assert isinstance(warped(flat), Whole)
    assert least(flat) < 15 * least(peaked)
