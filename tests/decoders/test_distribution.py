"""Small and whole distributions: one law, one interface, one token for a uniform number."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders.distribution import Small, Whole, minimum, point_mass, residual
from tests.pieces import FORMS, small

SIZE = 7
WEIGHTS = st.lists(
    st.sampled_from([0.0, 0.0, 1e-30, 0.1, 1.0, 5.0, 1 / 3]), min_size=SIZE, max_size=SIZE
).filter(any)
PAIRS = st.tuples(st.sampled_from(list(FORMS.values())), st.sampled_from(list(FORMS.values())))


def normal(weights):
    w = torch.tensor(weights, dtype=torch.float64)
    return w / w.sum()


def masses(p):
    return [p[x] for x in range(SIZE)]


def close(p, expected):
    assert masses(p) == pytest.approx(list(expected), abs=1e-12)


@given(WEIGHTS, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5))
def test_one_uniform_number_draws_the_same_token_from_both_forms(weights, uniforms):
    few, whole = small(normal(weights)), Whole(normal(weights))
    assert few.draw(uniforms) == whole.draw(uniforms)
    assert list(few.items()) == list(whole.items())
    assert few.total == pytest.approx(whole.total, abs=1e-15)
    assert few.entropy == pytest.approx(whole.entropy)


@given(WEIGHTS, WEIGHTS, PAIRS, st.floats(0.1, 3))
def test_every_operation_is_that_of_numpy_in_any_mixture_of_forms(
    p_weights, q_weights, forms, factor
):
    p_array, q_array = normal(p_weights).numpy(), normal(q_weights).numpy()
    p, q = (form(normal(w)) for form, w in zip(forms, (p_weights, q_weights), strict=True))
    close(factor * p, factor * p_array)
    close(p / factor, p_array / factor)
    close(minimum(p, q), np.minimum(p_array, q_array))
    assert minimum(p, q).total == pytest.approx(np.minimum(p_array, q_array).sum())
    over = np.maximum(p_array - factor * q_array, 0)
    assume(over.sum() == 0 or over.sum() > 1e-9)
    close(residual(p, factor * q), over / over.sum() if over.sum() else p_array)
    close(p.within([1, 4]), [m if x in (1, 4) else 0 for x, m in enumerate(p_array)])


@given(WEIGHTS, st.integers(0, SIZE - 1), st.sampled_from(list(FORMS.values())))
def test_without_a_token_the_others_share_its_mass(weights, token, form):
    probs = normal(weights)
    rest = probs.numpy().copy()
    rest[token] = 0
    without = form(probs).without(token)
    close(without, rest / rest.sum() if rest.sum() else rest)
    assert (without.total > 0) == bool(rest.sum())


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_an_empty_residual_is_p(form):
    p = form(torch.tensor([0.2, 0.8], dtype=torch.float64))
    assert residual(p, p) is p
    assert residual(p, form(torch.tensor([0.3, 0.9]))) is p


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_pairs_of_some_rows_are_renormalised_in_the_rows_they_are_given(form):
    pairs = form(
        torch.tensor([[0.1, 0.2], [0.0, 0.3], [0.15, 0.25]], dtype=torch.float64).flatten()
    )
    found = pairs.regrouped({2: 0, 0: 1}, 2)
    assert dict(found.items()) == pytest.approx(
        {0: 0.15 / 0.7, 1: 0.25 / 0.7, 2: 0.1 / 0.7, 3: 0.2 / 0.7}
    )


def test_a_point_mass_is_certain():
    assert point_mass(3).draw([0.0, 0.999]) == [3, 3]
    assert (point_mass(3)[3], point_mass(3)[2], point_mass(3).entropy) == (1, 0, 0)


def test_entropy_is_in_nats():
    assert Small({0: 0.5, 9: 0.5}).entropy == pytest.approx(math.log(2))
