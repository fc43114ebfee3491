"""The attention of the kernels, against plain attention in float64."""

import pytest
import torch

pytest.importorskip("numba")

from decoders.engine.attention.interface import Packing
from decoders.engine.cache import Reach
from decoders.engine.kernels.program import attend
from tests.decoders.engine.attention.test_kernels import draw_pass, worst_error
from tests.pairwise import pairwise, part

DTYPES = torch.float32, torch.bfloat16


def by_kernel(q, packing, layer, scale, softcap, sinks):
    """The kernel as one more way to attend."""
    keys, values, segments = packing.keys[layer], packing.values[layer], packing.segments
    masks, window = packing.masks, packing.window
    heads, tokens, size = q.shape
    rows = q.transpose(0, 1).float().contiguous()
    out = torch.full((tokens, heads, values.shape[-1]), torch.nan)
    keys, values = keys.contiguous(), values.contiguous()
    sinks = None if sinks is None else sinks.float()
    attend(
        rows.data_ptr(), heads, heads // keys.shape[1], size, values.shape[-1], keys.data_ptr(),
        values.data_ptr(), segments.data_ptr(), len(segments), masks.data_ptr(), window,
        float(scale), float(softcap), 0 if sinks is None else sinks.data_ptr(), out.data_ptr(),
        int(keys.dtype == torch.bfloat16), 0,
    )  # fmt: skip
    return out


@pytest.mark.slow  # test_lower sees it in whole passes
@pytest.mark.parametrize(("shapes", "window", "kind", "layout", "dtype"), part(pairwise(
    ["chains", "trees", "prompts", "mixed"],
    [0, 1, 7, 30],
    [(0.0, False), (3.0, False), (0.0, True)],
    [((2, 20, 24), 4), ((1, 64, 80), 5)],
    DTYPES,
)))  # fmt: skip
def test_attention(shapes, window, kind, layout, dtype):
    """Rows of the cache in bfloat16 are read as they are, and nothing else is rounded to it."""
    (softcap, sunk), (layout, heads) = kind, layout
    reach = Reach(window) if window else None
    packing = draw_pass(5, shapes, reach=reach, layout=layout)
    assert worst_error(by_kernel, packing, dtype, heads, softcap, sunk) < 1e-5


def attended(q, keys, values, line, masks):
    """What the kernel gives for a request whose segment is `line`."""
    none = torch.empty(0, dtype=torch.long)
    packing = Packing(none, torch.tensor([line]), none, masks, [keys], [values])
    return by_kernel(q, packing, 0, 0.25, 0.0, None)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("size", "past"), [(5, 0), (16, 100), (40, 1), (64, 30)])
def test_a_token_has_the_same_bits_alone_and_among_others(size, past, dtype):
    generator = torch.Generator().manual_seed(past)
    keys, values = (torch.randn(past + 9, 2, size, generator=generator).to(dtype) for _ in range(2))
    q, empty = torch.randn(6, 9, size, generator=generator), torch.zeros(2, dtype=torch.bool)

    def part(first, tokens):
        line = 0, tokens, 0, past + first, -1, 0
        return attended(q[:, first : first + tokens], keys, values, line, empty)

    together = part(0, 9)
    for tokens in (1, 2, 5):
        for first in range(0, 9 - tokens, tokens):
            assert torch.equal(part(first, tokens), together[first : first + tokens])


def test_rows_that_are_not_seen_change_no_bit():
    """A request's rows may have dead ones between them, and their number depends on its past."""
    generator = torch.Generator().manual_seed(0)
    keys, values, q = (torch.randn(40, 2, 16, generator=generator) for _ in range(3))
    seen = torch.tensor([0, 1, 2, 3, 7, 8, 20, 21, 22, 30])
    whole = torch.zeros(31, dtype=torch.bool)
    whole[seen] = True
    empty, few = torch.zeros(2, dtype=torch.bool), (0, 1, 0, len(seen) - 1, -1, 0)
    one = attended(q[:2, :1], keys, values, (0, 1, 0, 30, 0, 0), whole)
    other = attended(q[:2, :1], keys[seen], values[seen], few, empty)
    assert torch.equal(one, other)
