"""The random source."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoders.request import SeededSource
from tests.pieces import FORMS

MASSES = st.sampled_from([0.0, 0.0, 1e-30, 0.1, 1.0, 5.0])
WEIGHTS = st.lists(MASSES, min_size=2, max_size=8).filter(any)


def normal(weights):
    w = torch.tensor(weights, dtype=torch.float64)
    return w / w.sum()


@given(WEIGHTS, st.integers(0, 2**31), st.sampled_from(list(FORMS.values())))
def test_a_token_without_mass_is_never_drawn(weights, seed, form):
    probs = form(normal(weights))
    assert all(probs[i] > 0 for i in SeededSource(seed).draw(probs, 200))


class Extreme(SeededSource):
    """Uniform numbers at the ends of their range."""

    def __init__(self, u):
        super().__init__(0)
        self.take = lambda count: [u] * count


@given(
    WEIGHTS, st.sampled_from([torch.float32, torch.float64]), st.sampled_from(list(FORMS.values()))
)
def test_the_ends_of_the_uniform_range_draw_the_first_and_last_token_with_mass(
    weights, dtype, form
):
    probs = form(normal(weights).to(dtype))
    with_mass = [x for x, m in probs.items() if m > 1e-12]
    (first,), (last,) = Extreme(0.0).draw(probs), Extreme(1 - 2**-53).draw(probs)
    assert probs[first] > 0
    assert first <= with_mass[0]
    assert last >= with_mass[-1]
    assert probs[last] > 0


def test_draws_have_the_frequencies_of_probs_token_0_among_them():
    probs = torch.tensor([0.5, 0.0, 0.3, 0.2], dtype=torch.float64)
    for form in FORMS.values():
        counts = np.bincount(SeededSource(3).draw(form(probs), 40_000), minlength=4) / 40_000
        assert counts == pytest.approx(probs.numpy(), abs=0.012)
        assert SeededSource(0).draw(form(torch.tensor([1.0, 0.0])), 3) == [0, 0, 0]


def test_each_acceptance_has_a_number_of_its_own():
    """Published code seeds every acceptance draw alike."""
    source = SeededSource(0)
    numbers = [source.accept(0.3) for _ in range(4000)]
    assert len({u for _, u in numbers}) == 4000
    assert all(kept == (u < 0.3) for kept, u in numbers)
    kept = np.array([k for k, _ in numbers], dtype=float)
    assert kept.mean() == pytest.approx(0.3, abs=0.03)
    assert np.corrcoef(kept[1:], kept[:-1])[0, 1] == pytest.approx(0, abs=0.05)
