"""A product turned round is the same product."""

import pytest
import torch

from decoders.engine.linear import MOST_TOKENS, FewTokensLinear, hasten


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 5, MOST_TOKENS, MOST_TOKENS + 1])
def test_the_same_product(tokens, bias):
    generator = torch.Generator().manual_seed(tokens)
    plain = torch.nn.Linear(48, 32, bias=bias)
    model = torch.nn.Sequential(plain, torch.nn.ReLU())
    x = torch.randn(1, tokens, 48, generator=generator)
    with torch.inference_mode():
        expected = model(x)
        weight = plain.weight
        hasten(model)
        out = model(x)
    assert type(model[0]) is FewTokensLinear
    assert model[0].weight is weight
    assert out.is_contiguous()
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-6)


def test_other_shapes_go_the_usual_way():
    layer = torch.nn.Linear(6, 5).double()
    for x in (torch.randn(3, 6), torch.randn(2, 3, 6), torch.randn(1, 3, 6)):
        expected = layer(x.double())
        hasten(copy := torch.nn.Sequential(layer))
        assert torch.equal(copy(x.double()), expected)
        layer.__class__ = torch.nn.Linear
