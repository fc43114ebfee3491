"""Distributions in both forms, rows looked through, and warping against an independent one."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers.generation import MinPLogitsWarper

from decoders.distribution import PLAIN, Warping, Whole, minimum, nucleus, residual, top, warp
from decoders.engine.kernels.loading import kernels
from decoders.errors import InputError
from decoders.testing import situations
from tests.needs import needs_kernels
from tests.pairwise import EVERYWHERE
from tests.pieces import FORMS, small
from tests.rows import CUTS, SHAPES, SIZES, left, row_of

SIZE = 7
MASSES = st.sampled_from([0.0, 0.0, 1e-30, 0.1, 1.0, 5.0, 1 / 3])
WEIGHTS = st.lists(MASSES, min_size=SIZE, max_size=SIZE).filter(any)
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


NEVER = float("-inf")
ROWS = st.lists(
    st.sampled_from([NEVER, -3.0, 0.0, 0.25, 0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=9
).filter(lambda row: max(row) > NEVER)
WARPINGS = st.builds(
    Warping, st.sampled_from([0.0, 0.3, 1.0, 1.7]), st.integers(0, 12),
    st.sampled_from([0.01, 0.37, 0.62, 0.9, 1.0]), st.sampled_from([0.0, 0.0, 0.04, 0.35, 1.0]),
    st.sampled_from([0.0, 0.0, 0.45, 1.1, 2.3]), st.booleans(),
)  # fmt: skip


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


@pytest.mark.parametrize(("values", "names"), [
    ((-1.0,), "temperature"),
    ((float("nan"),), "temperature"),
    ((1.0, 1.5), "top_k"),
    ((1.0, 0, 0.0), "top_p"),
    ((1.0, 0, 1.1), "top_p"),
    ((1.0, 0, 1.0, 1.5), "min_p must be"),
    ((1.0, 0, 1.0, 0.0, -1), "top_n_sigma must be"),
    ((1.0, 0, 1.0, 0.0, 0.0, "yes"), "temperature_last must be"),
])  # fmt: skip
def test_values_out_of_range_are_refused_by_name(values, names):
    with pytest.raises(InputError, match=names):
        Warping(*values)


COMPILED = getattr(kernels(), "scan", None)
EACH = pytest.mark.parametrize(
    "scan",
    [pytest.param(PLAIN, id="plain"), pytest.param(COMPILED, id="compiled", marks=needs_kernels)],
)
LOGITS = st.one_of(
    st.floats(-50, 50, width=32), st.sampled_from([NEVER, -1e30, 0.0, 0.5, 0.5, 3.0])
)


def rows_of(*rows):
    return np.array(rows, dtype=np.float32)


@needs_kernels
@given(st.integers(1, 3000), st.integers(1, 80), st.integers(1, 2000), st.integers(0, 99))
@settings(deadline=None)
def test_of_equals_kernels_find_the_lower_ids(size, count, kinds, seed):
    """They look through long rows by columns, so not in the order of ids."""
    levels = np.random.default_rng(seed).integers(0, kinds, size)
    row, count = np.where(levels, levels, NEVER).astype(np.float32), min(count, size)
    values, ids = COMPILED.likeliest(row[None], count)
    expected = sorted(range(size), key=lambda i: (-row[i], i))[:count]
    assert ids[0].tolist() == expected
    assert values[0].tolist() == row[expected].tolist()


@EACH
@given(
    st.lists(LOGITS, min_size=1, max_size=40).filter(lambda x: max(x) > NEVER),
    st.sampled_from([1.0, 0.3, 1.7, 100.0, 1e-30, 1e-46, 5e-324]),
)
@settings(deadline=None)
def test_the_sum_is_that_of_float64(scan, row, temperature):
    (found,) = scan.excesses(rows_of(row), np.array([max(row)]), temperature)
    # a temperature below float32's least normal number counts as that
    least = max(temperature, float(np.finfo(np.float32).tiny))
    total = sum(math.exp((x - max(row)) / least) for x in row)
    assert found == pytest.approx(math.log(total), abs=2e-6)


@EACH
@pytest.mark.parametrize("count", [1, 64, 65, 200])
def test_the_result_for_a_row_depends_on_this_row_alone(scan, count):
    """Or a request's tokens would depend on the others of its batch."""
    rows = np.random.default_rng(0).normal(size=(9, 4096)).astype(np.float32)
    values, ids = scan.likeliest(rows, count)
    sums = scan.excesses(rows, values[:, 0].astype(float), 0.8)
    for i in range(9):
        alone = scan.likeliest(rows[i : i + 1], count)
        assert alone[0].tolist() == values[i : i + 1].tolist()
        assert alone[1].tolist() == ids[i : i + 1].tolist()
        highest = alone[0][:, 0].astype(float)
        assert scan.excesses(rows[i : i + 1], highest, 0.8) == sums[i]


@EACH
@given(st.sampled_from([*SHAPES]), SIZES, st.integers(0, 10**6), CUTS, st.booleans())
@settings(deadline=None, max_examples=200 if EVERYWHERE else 40)
def test_a_nucleus_is_that_of_a_sort(scan, shape, size, seed, cuts, last):
    """Of equals the lower ids stay; top-p and min-p may see the probabilities at temperature 1."""
    (temperature, *limits), row = cuts, row_of(shape, size, seed)
    seen = 1.0 if last else temperature
    expected, margin = left(row, seen, *limits)
    top_p, min_p = limits
    warping = Warping(temperature, top_p=top_p, min_p=min_p, temperature_last=last)
    found = nucleus(row, warping, scan)
    assert found.dtype == np.float32
    if margin > 1e-5:  # float32 rounds in more places than that
        stay = expected > 0
        masses = np.exp((row.astype(float) - float(row.max())) / temperature) * stay
        assert ((found > 0) == stay)[masses > 1e-30].all()
        assert found == pytest.approx(masses / masses.sum(), rel=1e-5, abs=1e-30)


@EACH
@pytest.mark.parametrize("count", [1, 6, 64])
@pytest.mark.parametrize("strange", [[0], [300], [0, 255, 256], range(256), range(1000)])
def test_of_a_long_row_too(scan, count, strange):
    """Ids stay within the row, or kernels would read beyond it."""
    row = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    row[list(strange)] = np.nan
    values, ids = scan.likeliest(row[None], count)
    assert math.isnan(values[0, 0])
    assert all(0 <= i < 1000 for i in ids[0].tolist())


def test_where_the_order_of_temperature_counts():
    """At T=2 the second token reaches a fifth of the first only if min-p sees it heated."""
    logits = torch.tensor([0.0, -2.0, -9.0], dtype=torch.float64)
    assert (warp(logits, Warping(2.0, min_p=0.2)) > 0).tolist() == [True, True, False]
    last = warp(logits, Warping(2.0, min_p=0.1, temperature_last=True))
    assert last.tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1)), 0])
    assert warp(logits, Warping(2.0, min_p=0.2, temperature_last=True)).tolist() == [1, 0, 0]
