"""The tensors of one pass (PackedInputs), made from the nodes that each request feeds (Feed)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from decoders.devices import device_of
from decoders.engine.attention.interface import Layered, Packing, Part
from decoders.engine.attention.operator import needs_biases
from decoders.engine.memory.arena import Arena
from decoders.engine.memory.rows import CacheRows, Mask
from decoders.shapes import NodeId
from decoders.tree import TokenTree

ALIGNED = 64  # bytes: the most that memory-efficient SDPA and any dtype need
NOTHING = torch.zeros(1, dtype=torch.bool)  # in place of tensors that nobody reads


@dataclass(frozen=True, slots=True)
class Feed:
    """One request's part of a pass.

    Attributes:
        tree: the request's tree
        cache: its rows
        nodes: the nodes to feed, parents first
        wanted: those of them that need logits
    """

    tree: TokenTree
    cache: CacheRows
    nodes: list[NodeId]
    wanted: list[NodeId]


class PackedInputs(NamedTuple):
    """The tensors of one pass.

    Attributes:
        input_ids: (1, tokens)
        position_ids: (1, tokens)
        wanted: indices of the tokens that want logits, (n,)
        packing: which tokens and rows belong to which request
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    wanted: torch.Tensor
    packing: Packing | Layered


def missing_ancestors(tree: TokenTree, cache: CacheRows, wanted: Sequence[NodeId]) -> list[NodeId]:
    """The wanted nodes and all their ancestors that have no row yet, parents first."""
    missing: set[NodeId] = set()
    for node in wanted:
        while node >= 0 and node not in cache.row and node not in missing:
            missing.add(node)
            node = tree.parents[node]
    return sorted(missing)


def pack(
    feeds: Sequence[Feed], arena: Arena, by_request: bool = False, window: int = 0
) -> PackedInputs:
    """Join the feeds, one after another, and give their tokens cache rows.

    Args:
        feeds: what each request feeds
        arena: the arena of their caches
        by_request: whether attention needs only the `parts`
        window: how many rows, its own included, a token of a chain sees; 0 for all
    """
    device, dtype = arena.keys[0].device, arena.keys[0].dtype
    masks = [arena.append(feed.cache, feed.tree, feed.nodes) for feed in feeds]
    tokens = [feed.tree.tokens[node] for feed in feeds for node in feed.nodes]
    positions = [feed.tree.depths[node] for feed in feeds for node in feed.nodes]
    rows: list[int] = []
    wanted: list[int] = []
    for feed in feeds:
        past = len(feed.cache) - len(feed.nodes)
        wanted += [len(rows) + feed.cache.row[node] - past for node in feed.wanted]
        rows += range(feed.cache.base + past, feed.cache.base + len(feed.cache))
    divide, table, biases = None, NOTHING, NOTHING
    if by_request:
        flat = Flat()
        segments = _integers(segments_of(feeds, masks, flat))
        visible = flat.tensor(torch.bool) if flat.arrays else NOTHING
        # Padded passes take rows back before the parts are made.
        sizes = [(len(feed.nodes), feed.cache.base, len(feed.cache)) for feed in feeds]
        divide = partial(parts, sizes, masks, arena, dtype, window)
    else:
        biased = needs_biases(device, dtype)
        segments, table, visible, biases = tables(feeds, masks, dtype, biased, window)
    numbers: list[Sequence] = [[tokens], [positions], rows, wanted]
    every = moved([*map(_integers, numbers), table, visible, biases], device)
    ids, places, into, answered, table, visible, biases = every
    packing = Packing(
        into,
        segments,
        table,
        visible,
        biases,
        arena.keys,
        arena.values,
        window,
        divide,
        arena.scratch,
    )
    return PackedInputs(ids, places, answered, packing)


def _integers(numbers: Sequence) -> torch.Tensor:
    # Of nothing, numpy makes an array without strides, whose bytes torch does not view.
    return torch.from_numpy(np.array(numbers, np.int64)) if numbers else torch.empty(0).long()


def moved(tensors: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Bring tensors to a device in one transfer: each to a GPU takes longer than its content."""
    if device_of(device).on_host:
        return list(tensors)
    bytes_of = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors]
    places = [len(part) + -len(part) % ALIGNED for part in bytes_of]
    every = torch.zeros(sum(places), dtype=torch.uint8)
    for part, place in zip(bytes_of, every.split(places), strict=True):
        place[: len(part)] = part
    return [
        place[: len(part)].view(tensor.dtype).view(tensor.shape)
        for tensor, part, place in zip(
            tensors, bytes_of, every.to(device).split(places), strict=True
        )
    ]


def parts(
    sizes: Sequence[tuple[int, int, int]],
    masks: Sequence[Mask | None],
    arena: Arena,
    dtype: torch.dtype,
    window: int = 0,
) -> tuple[Part, ...]:
    """Each request's rows and what to add to its scores; its sizes are tokens, first row, rows."""
    requests, start = [], 0
    for (n, base, total), mask in zip(sizes, masks, strict=True):
        bias = None
        hides = mask is None and 0 < window < total
        causal = mask is None and n == total and n > 1 and not hides
        if mask is not None or (n > 1 and not causal):
            bias = torch.from_numpy(added(mask, n, total, window)).to(arena.keys[0].device, dtype)
        begin = total - window if hides and n == 1 else 0
        cached = arena.windows(base + begin, base + total)
        requests.append(Part(start, start + n, bias, causal, *cached))
        start += n
    return tuple(requests)


def added(mask: Mask | None, n: int, total: int, window: int = 0) -> np.ndarray:
    """The bias (n, total) that is added to the scores of a request's last n rows with all rows.

    It is 0 for rows that they see, else -inf. Without a mask they are a chain, in which each sees
    the last `window` rows.
    """
    bias = np.zeros((n, total), dtype=np.float32)
    start, visible = mask or (total - n, np.tri(n, dtype=bool))
    bias[:, start:][~visible] = -np.inf
    if mask is None and 0 < window < total:
        bias[np.tri(n, total, total - n - window, dtype=bool)] = -np.inf
    return bias


def tables(
    feeds: Sequence[Feed],
    masks: Sequence[Mask | None],
    dtype: torch.dtype,
    biased: bool,
    window: int = 0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The segments, table, masks and biases of a Packing, for kernels.

    They are on the host. Biases are made only if `biased`.
    """
    # Memory-efficient SDPA reads biases in aligned pieces.
    flat, biases = Flat(), Flat(16)
    segments = segments_of(feeds, masks, flat, biases if biased else None, window)
    start = segments[-1][1]
    table = [
        (start, base, past + stop - start, mask, opening)
        for start, stop, base, past, mask, _, opening in segments
    ]
    return (
        _integers(segments),
        torch.tensor([*table, (start, 0, 0, -1, 0)], dtype=torch.int32).T.contiguous(),
        flat.tensor(torch.bool),
        biases.tensor(torch.float32).to(dtype),
    )


def segments_of(
    feeds: Sequence[Feed],
    masks: Sequence[Mask | None],
    flat: "Flat",
    biases: "Flat | None" = None,
    window: int = 0,
) -> list[tuple[int, ...]]:
    """The segments of a Packing; masks are added to `flat`, and biases to `biases` if given."""
    segments: list[tuple[int, ...]] = []
    start = 0
    for feed, mask in zip(feeds, masks, strict=True):
        n, past = len(feed.nodes), len(feed.cache) - len(feed.nodes)
        bias = -1
        if biases and (mask is not None or (n > 1 and (past or 0 < window < n))):
            bias = biases.add(added(mask, n, past + n, window))
        visible, opening = flat.add(mask and mask.visible), mask.start if mask else past
        segments.append((start, start + n, feed.cache.base, past, visible, bias, opening))
        start += n
    return segments


@dataclass
class Flat:
    """Arrays joined into one flat tensor, which is never empty.

    Args:
        step: each array begins at a multiple of this
    """

    step: int = 1
    arrays: list[np.ndarray] = field(default_factory=list)
    size: int = 0

    def add(self, array: np.ndarray | None) -> int:
        """Append an array. Returns where it begins, or -1 for None."""
        if array is None:
            return -1
        begin = self.size
        self.arrays.append(array.ravel())
        if gap := -array.size % self.step:
            self.arrays.append(np.zeros(gap, array.dtype))
        self.size += array.size + gap
        return begin

    def tensor(self, dtype: torch.dtype) -> torch.Tensor:
        return (
            torch.from_numpy(np.concatenate(self.arrays))
            if self.arrays
            else torch.zeros(1, dtype=dtype)
        )
