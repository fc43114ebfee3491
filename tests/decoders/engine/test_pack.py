"""The inputs of a pass reach its device in one piece."""

import pytest
import torch

from decoders.engine.cache import Arena
from decoders.engine.pack import ALIGNED, Feed, pack
from decoders.tree import TokenTree
from tests.elsewhere import FAR, TwoDevices


class Counting(TwoDevices):
    """A made-up device, and the number of copies to it."""

    def __init__(self):
        super().__init__()
        self.transfers = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.transfers += function is torch.Tensor.to and FAR in args
        return super().__torch_function__(function, types, args, kwargs)


def packed(device: torch.device, dtype: torch.dtype):
    """A tree, a chain and a prompt in one pass."""
    arena = Arena([(1, 4, 4)], dtype, device)
    feeds = []
    for length, drafts in ((5, 3), (70, 1), (2, 0)):
        tree, cache = TokenTree(range(length)), arena.take(100)
        if drafts:
            pack([Feed(tree, cache, tree.trunk[:], [])], arena)
        children = [tree.add(tree.trunk[-1], token) for token in range(drafts)]
        feeds.append(Feed(tree, cache, children or tree.trunk[:], (children or tree.trunk)[-1:]))
    return feeds, arena


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_pass_takes_one_transfer(dtype):
    """A pass copied its indices and each of three tables: four waits of a GPU's host."""
    near = pack(*packed(torch.device("cpu"), dtype))
    with Counting() as counting:
        feeds, arena = packed(FAR, dtype)
        before = counting.transfers
        far = pack(feeds, arena)
        assert counting.transfers == before + 1
        tables = [
            [
                i.input_ids,
                i.position_ids,
                i.wanted,
                i.packing.rows,
                i.packing.table,
                i.packing.masks,
                i.packing.biases,
            ]
            for i in (near, far)
        ]
        for one, other in zip(*tables, strict=True):
            assert other.device == FAR
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert torch.equal(one, other.as_subclass(torch.Tensor))
        for table in tables[1][4:]:
            assert table.storage_offset() * table.itemsize % ALIGNED == 0
        # these stay on the host
        assert far.packing.segments.tolist() == near.packing.segments.tolist()
        assert far.packing.segments.device.type == "cpu"
