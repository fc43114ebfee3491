"""The kernels between the products, against torch in float64."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from decoders.engine.kernels import ACTIVATIONS, operators
from decoders.engine.lowering import groups


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


def test_numbers_are_rounded_as_torch_rounds_them():
    """Ties, the least and the largest numbers, and what is no number."""
    bits = torch.arange(0, 2**32, 7919, dtype=torch.int64).to(torch.int32)
    ties = (torch.arange(2**16) * 2**16 + 2**15).to(torch.int32)
    x = torch.cat([bits, ties, ties - 1, ties + 1]).view(torch.float32)
    expected = x.bfloat16().float()
    operators.round_off(x.data_ptr(), len(x))
    assert torch.equal(x.isnan(), expected.isnan())
    assert torch.equal(x.nan_to_num(0), expected.nan_to_num(0))


def test_operators_round_where_torch_rounds():
    """A norm, a rotation, a gate and a cap in bfloat16, whose every operator rounds."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(6, 32, generator=generator).bfloat16() for _ in range(2))
    weight, angles = (torch.randn(n, generator=generator).bfloat16() for n in (32, 6 * 16))
    cos, sin = angles.view(6, 16).cos(), angles.view(6, 16).sin()
    wide, up, scale, c, s = (each.float() for each in (x, y, weight, cos, sin))
    out, at = torch.empty(6, 32), wide.data_ptr()

    def check(expected):
        operators.round_off(out.data_ptr(), out.numel())
        torch.testing.assert_close(out, expected.float(), rtol=0, atol=0)

    operators.norm(at, 6, scale.data_ptr(), 32, 1e-6, True, out.data_ptr())
    unit = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    check(weight * unit.bfloat16())
    operators.rotate(at, 6, 1, 32, c.data_ptr(), s.data_ptr(), True, out.data_ptr())
    first, second = x.chunk(2, -1)
    check(torch.cat([first * cos + -second * sin, second * cos + first * sin], -1))
    for how, activation in enumerate(ACTIVATIONS):
        operators.gated(at, up.data_ptr(), x.numel(), how, True, out.data_ptr())
        check(groups.ACTIVATIONS[activation](x) * y)
    operators.cap(at, x.numel(), np.float32(1.5), True, out.data_ptr())
    check(torch.tanh(x / 1.5) * 1.5)
