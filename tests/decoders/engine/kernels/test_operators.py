"""The kernels between the products, against torch in float64."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from decoders.engine.kernels import operators
from decoders.engine.kernels.parts import attend
from decoders.engine.memory.rows import Reach
from tests.decoders.engine.attention.test_kernels import draw_pass, worst_error


def test_the_exponential():
    """To two units in the last place, 0 far below, and not a number stays so."""
    x = np.linspace(-86.9, 87.9, 100001).astype(np.float32)
    found = np.array([operators.exponential(number) for number in x], dtype=np.float64)
    exact = np.exp(x.astype(np.float64))
    assert (abs(found - exact) <= 2.0**-22 * exact).all()
    assert operators.exponential(np.float32(-np.inf)) == 0
    assert operators.exponential(np.float32(-200)) == 0
    assert operators.exponential(np.float32(0)) == 1
    assert np.isnan(operators.exponential(np.float32(np.nan)))
    # What follows divides by 1 + this.
    assert np.isfinite(operators.exponential(np.float32(1000)))


def by_kernel(
    q, keys, values, segments, table, masks, biases, scale, softcap, window=0, sinks=None
):
    """The kernel as one more way to attend."""
    heads, tokens, size = q.shape
    rows = q.transpose(0, 1).contiguous()
    out = torch.full((tokens, heads, values.shape[-1]), torch.nan)
    keys, values = keys.contiguous(), values.contiguous()
    attend(
        rows.data_ptr(), heads, heads // keys.shape[1], size, values.shape[-1], keys.data_ptr(),
        values.data_ptr(), segments.data_ptr(), len(segments), masks.data_ptr(), window,
        float(scale), float(softcap), 0 if sinks is None else sinks.data_ptr(), out.data_ptr(), 0,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("shapes", ["chains", "trees", "prompts", "mixed"])
@pytest.mark.parametrize("window", [0, 1, 7, 30])
@pytest.mark.parametrize(("softcap", "sunk"), [(0.0, False), (3.0, False), (0.0, True)])
def test_attention(shapes, window, softcap, sunk):
    reach = Reach(window) if window else None
    packing = draw_pass(5, shapes, reach=reach, layout=(2, 20, 24))
    assert worst_error(by_kernel, packing, torch.float32, 4, softcap, sunk) < 1e-5


def test_rows_that_are_not_seen_change_no_bit():
    """A request's rows may have dead ones between them, and their number depends on its past."""
    generator = torch.Generator().manual_seed(0)
    keys, values, q = (torch.randn(40, 2, 16, generator=generator) for _ in range(3))
    seen = torch.tensor([0, 1, 2, 3, 7, 8, 20, 21, 22, 30])
    whole = torch.zeros(31, dtype=torch.bool)
    whole[seen] = True
    gaps = torch.tensor([[0, 1, 0, 30, 0, -1, 0]])
    none = torch.tensor([[0, 1, 0, len(seen) - 1, -1, -1, 0]])
    empty = torch.zeros(2, dtype=torch.bool)
    one = by_kernel(q[:2, :1], keys, values, gaps, None, whole, None, 0.25, 0.0)
    other = by_kernel(q[:2, :1], keys[seen], values[seen], none, None, empty, None, 0.25, 0.0)
    assert torch.equal(one, other)


def test_a_norm_and_a_gate():
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    y, weight, out = torch.randn_like(x), torch.linspace(-1, 2, 20), torch.empty(3, 20)
    operators.norm(x.data_ptr(), 3, weight.data_ptr(), 20, 1e-6, out.data_ptr())
    exact = weight * (x / (x.double().pow(2).mean(1, keepdim=True) + 1e-6).sqrt())
    torch.testing.assert_close(out.double(), exact, rtol=1e-6, atol=1e-6)
    operators.gated(x.data_ptr(), y.data_ptr(), 60, out.data_ptr())
    exact = torch.nn.functional.silu(x.double()) * y.double()
    torch.testing.assert_close(out.double(), exact, rtol=1e-6, atol=1e-6)
    x[1, 3] = torch.nan
    operators.norm(x.data_ptr(), 3, weight.data_ptr(), 20, 1e-6, out.data_ptr())
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()
