"""Fewer calls, the same result: norms, rotations, repeated views; look-alikes stay as they are."""

import pytest
import torch

from decoders.engine.recording.function import as_function
from decoders.engine.recording.fusion import fused
from decoders.engine.recording.recorder import Recorder

WEIGHT = torch.linspace(-1, 2, 8, dtype=torch.float64)


def norm(x, wanted, of=None, eps=1e-6):
    return WEIGHT * (x * torch.rsqrt((x if of is None else of).pow(2).mean(-1, keepdim=True) + eps))


def turned(x):
    return torch.cat((-x[..., 4:], x[..., :4]), -1)


def rotation(x, wanted, by=None, scale=1.0):
    cos, sin = (torch.cos(x) * scale)[:, :1], (torch.sin(x) * scale)[:, :1]
    return x * cos + turned(x if by is None else by) * sin


def recorded(function, x, wanted):
    """The steps of a function of (x, wanted) before and after they are fused, and both results."""
    with torch.inference_mode():
        with Recorder({"x": x, "wanted": wanted}) as recorder:
            answer = function(x, wanted)
        before = recorder.steps, [recorder.value_of(answer)]
        after = fused(*before)
        results = [
            as_function(*steps, ("x", "wanted"))(x, wanted, 0, 0)[0] for steps in (before, after)
        ]
    return len(before[0]), len(after[0]), results


@pytest.mark.parametrize(
    ("function", "fewer"),
    [
        (norm, 2),
        (lambda x, wanted: norm(x, wanted, of=2 * x), 0),
        (lambda x, wanted: norm(x, wanted, eps=0.0) + norm(x, wanted), 4),
        (rotation, 5),
        (lambda x, wanted: rotation(x, wanted, scale=2.0), 3),
        (lambda x, wanted: rotation(x, wanted, by=x + 1), 2),
        (lambda x, wanted: x[:, wanted], 0),
        (lambda x, wanted: x[wanted], 0),
        (lambda x, wanted: (x.unsqueeze(1) * x.unsqueeze(1)).sum(1), 1),
        (lambda x, wanted: (
            x.view(-1, 4) + x.view(-1, 2, 2).sum(-1, keepdim=True).flatten(1).repeat(1, 2)
        ).view(-1), 0),
        (lambda x, wanted: wanted * 1.0, 0),
    ],
    ids=[
        "norm", "of something else", "two norms", "rotation", "scaled rotation",
        "of something else's halves", "wanted tokens", "wanted rows", "a view twice", "two views",
        "whole numbers stay so",
    ],
)  # fmt: skip
def test_the_same_in_fewer_steps(function, fewer):
    x, wanted = (
        torch.randn(3, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        torch.tensor([2, 0]),
    )
    before, after, (one, other) = recorded(function, x, wanted)
    assert before - after == fewer
    assert one.dtype == other.dtype
    torch.testing.assert_close(one, other, rtol=0, atol=1e-14)
