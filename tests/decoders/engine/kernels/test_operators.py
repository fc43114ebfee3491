"""The kernels between the products, against torch in float64."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from decoders.engine.kernels import operators


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
