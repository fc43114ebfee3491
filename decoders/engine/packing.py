"""From what each request feeds to the tensors of one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from decoders.engine.attention import Packing, needs_biases
from decoders.engine.cache import Arena, CacheRows
from decoders.shapes import NodeId
from decoders.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Feed:
    """One request's part of a pass: the nodes to feed, parents first, and which of them need logits."""

    tree: TokenTree
    cache: CacheRows
    nodes: list[NodeId]
    wanted: list[NodeId]


@dataclass(frozen=True, slots=True)
class PackedInputs:
    """The tensors of one pass: input_ids and positions (1, tokens), wanted (n,) indices into the tokens.

    In a pass of several tokens, a single index or segment gets a dummy second entry: compiled graphs specialise on size 1.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    wanted: torch.Tensor
    packing: Packing


def missing_ancestors(tree: TokenTree, cache: CacheRows, wanted: Sequence[NodeId]) -> list[NodeId]:
    """The wanted nodes and all their ancestors that have no row yet, parents first."""
    found: set[NodeId] = set()
    for node in wanted:
        while node >= 0 and node not in cache.row and node not in found:
            found.add(node)
            node = tree.parents[node]
    return sorted(found)


def pack(feeds: Sequence[Feed], arena: Arena, groups: int = 1) -> PackedInputs:
    """Join the feeds, one after another, and give their tokens cache rows; groups: most query heads that share a key head."""
    device, dtype = arena.keys[0].device, arena.keys[0].dtype
    biased = needs_biases(device, dtype)
    tokens: list[int] = []
    positions: list[int] = []
    rows: list[int] = []
    wanted: list[int] = []
    segments: list[tuple[int, int, int, int, int, int]] = []
    masks, biases = Flat(), Flat(16)  # memory-efficient SDPA reads biases in aligned pieces
    for feed in feeds:
        start, past, n = len(tokens), len(feed.cache), len(feed.nodes)
        arena.make_room(feed.cache, n)
        mask = feed.cache.append(feed.tree, feed.nodes)
        tokens += [feed.tree.tokens[node] for node in feed.nodes]
        positions += [feed.tree.depths[node] for node in feed.nodes]
        first = feed.cache.base + past
        rows += range(first, first + n)
        wanted += [start + feed.cache.row[node] - past for node in feed.wanted]
        places = masks.add(mask), -1
        if biased and (mask is not None or (past and n > 1)):
            seen = np.tri(n, past + n, past, dtype=bool) if mask is None else mask
            places = places[0], biases.add(np.tile(np.where(seen, np.float32(0), -np.inf), (groups, 1)))
        segments.append((start, len(tokens), feed.cache.base, past, *places))
    # Compiled graphs specialise on sizes 0 and 1: only the number of tokens may be 1.
    if len(tokens) > 1:
        wanted += wanted[:1] * (len(wanted) == 1)
        segments += [(len(tokens), len(tokens), 0, 0, -1, -1)] * (len(segments) == 1)
    table = [(start, base, past + stop - start, mask) for start, stop, base, past, mask, _ in segments]
    # In one tensor, for a single transfer to the device.
    indices = torch.tensor(tokens + positions + rows + wanted, device=device)
    ids, positions, rows, wanted = indices.split([len(tokens)] * 3 + [len(wanted)])
    packing = Packing(
        rows,
        torch.tensor(segments),
        torch.tensor([*table, (len(tokens), 0, 0, -1)], dtype=torch.int32).T.contiguous().to(device),
        masks.tensor(torch.bool).to(device),
        biases.tensor(torch.float32).to(device, dtype),
        arena.keys,
        arena.values,
    )
    return PackedInputs(ids[None], positions[None], wanted, packing)


class Flat:
    """Arrays joined into one flat tensor of at least two numbers; each begins at a multiple of `step`."""

    def __init__(self, step: int = 1):
        self.step = step
        self.arrays: list[np.ndarray] = []
        self.size = 0

    def add(self, array: np.ndarray | None) -> int:
        """Append an array; returns where it begins, -1 for None."""
        if array is None:
            return -1
        begin = self.size
        self.arrays.append(array.ravel())
        if gap := -array.size % self.step:
            self.arrays.append(np.zeros(gap, array.dtype))
        self.size += array.size + gap
        return begin

    def tensor(self, dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(self.arrays)) if self.arrays else torch.zeros(2, dtype=dtype)
