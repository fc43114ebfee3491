"""Beams alone: their joint, their warping, their best."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders.beams import Beam, Joint
from decoders.distribution import Warping, warp
from decoders.reading import Readings
from decoders.testing import situations
from decoders.testing.oracle import Branches, Watched


def request():
    return Watched([0], source=Branches(), warping=Warping(), budget=9)


def joint(beams, logits, likeliest=99, **options):
    return Joint(beams, list(Readings(logits, likeliest)), **options)


def values(found):
    return [found.value(i) for i in range(len(found.beams) * found.size)]


def test_the_joint_adds_each_beams_score_to_its_own_row():
    logits = torch.tensor([[0.7, 0.3], [0.5, 0.5]], dtype=torch.float64).log() + 5
    beams = [Beam(0, math.log(0.2)), Beam(0, math.log(0.6))]
    expected = [0.14, 0.06, 0.3, 0.3]
    for found in (joint(beams, logits, origin=0.0), joint(beams, logits, 0, origin=0.0)):
        assert np.exp(values(found)) == pytest.approx(expected)
        assert found.whole().exp().flatten().tolist() == pytest.approx(expected)
    assert np.exp(values(joint(beams, logits))) == pytest.approx([x / 0.6 for x in expected])


@pytest.mark.parametrize("score", [-24_000.0, -300_000.0])
@pytest.mark.parametrize("likeliest", [99, 0])
def test_a_long_beams_score_costs_no_digits(score, likeliest):
    """In float32 the scores of long texts were added first.

    At -24,000 the distribution was off by a total variation of 2.5e-4, at -300,000 by 3.7e-3."""
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beams = [Beam(0, score - 1.25), Beam(0, score), Beam(0, score - 0.5)]
    exact = joint(beams, logits, likeliest).warp(Warping())
    found = joint(beams, logits.float(), likeliest).warp(Warping())
    assert sum(abs(found[i] - exact[i]) for i in range(150)) / 2 < 1e-6
    r = request()
    roots = [Beam(r.tree.add(0, i), beam.score) for i, beam in enumerate(beams)]
    after = joint(roots, logits.float(), likeliest).draw(r, 50 + 7).beam
    assert after.score - score == pytest.approx(logits.log_softmax(-1)[1, 7].item(), abs=1e-6)


def test_beams_that_are_all_impossible_stay_so():
    """A draft that lacks tokens of the target can leave a search with such beams alone."""
    beams = [Beam(0, -math.inf), Beam(0, -math.inf)]
    assert values(joint(beams, torch.zeros(2, 3))) == [-math.inf] * 6
    assert joint(beams, torch.zeros(2, 3), 2).top(2) == [(0, -math.inf), (1, -math.inf)]
    impossible = joint(beams, torch.zeros(2, 3), 1).warp(Warping(1.0, top_k=2))
    assert [impossible[i] for i in range(6)] == [0.0] * 6  # not NaN


@st.composite
def beams_of_rows(draw):
    """Two to four beams, equal ones among them, and their rows of logits with ties."""
    rows = st.lists(st.sampled_from([-math.inf, -2.0, 0.0, 0.5, 1.0, 3.0]), min_size=6, max_size=6)
    possible = rows.filter(lambda row: max(row) > -math.inf)
    different = draw(st.lists(possible, min_size=1, max_size=3))
    which = draw(st.lists(st.integers(0, len(different) - 1), min_size=2, max_size=4))
    scores = draw(
        st.lists(
            st.sampled_from([0.0, -0.5, -3.0]), min_size=len(different), max_size=len(different)
        )
    )
    rows = torch.tensor([different[i] for i in which], dtype=torch.float64)
    return [Beam(0, scores[i]) for i in which], rows


@given(
    beams_of_rows(), st.sampled_from([0.0, 0.4, 1.0, 1.6]), st.integers(0, 9),
    st.sampled_from([0.3, 0.62, 1.0]), st.sampled_from([0.0, 0.21]), st.sampled_from([0.0, 1.3]),
)  # fmt: skip
def test_the_small_joint_equals_the_whole_one(beams_and_rows, temperature, top_k, top_p, m, n):
    """However few tokens of each beam were read."""
    beams, rows = beams_and_rows
    warping = Warping(temperature, top_k, top_p, m, n)
    whole = joint(beams, rows).whole().flatten()
    if top_p < 1 and temperature:
        likely = np.sort(situations.warp(whole, Warping(temperature, top_k, top_n_sigma=n)))[::-1]
        # where a sum meets p exactly, rounding decides
        assume(np.abs(likely.cumsum() - top_p).min() > 1e-9)
    distinct = np.unique(whole.numpy()[np.isfinite(whole.numpy())])
    # equal but for rounding: then it decides too
    assume(len(distinct) < 2 or np.diff(distinct).min() > 1e-9)
    expected = warp(whole, warping).tolist()
    for likeliest in (0, 1, 3, 6):
        found = joint(beams, rows, likeliest).warp(warping)
        assert [found[i] for i in range(len(whole))] == pytest.approx(expected, abs=1e-9)
