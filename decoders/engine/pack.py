"""The tensors of one pass (PackedInputs), made from the nodes that each request feeds (Feed).

A graph takes them in as one array (InputPlan).

The cache memory of one run on a model is Arenas: layers that do not all see equally far back have
separate rows, and so do the layers of each device. Arenas that no run uses wait in Idle.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch

from decoders.devices import device_of
from decoders.engine.attention.interface import Layered, Packing
from decoders.engine.cache import Arena, CacheRows, Layout, Mask, Reach, ReachRows
from decoders.shapes import NodeId
from decoders.tree import TokenTree

ALIGNED = 64  # bytes: the most that memory-efficient SDPA and any dtype need
MASKS = 2**16  # numbers in all masks of a graph's pass
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
        packing: which tokens and rows belong to which request, a Packing or a Layered
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    wanted: torch.Tensor
    packing: Any


class InputPlan:
    """The one array that goes in to a graph: where each tensor of a pass lies in it.

    Args:
        tokens: the most tokens of the pass
        requests: the most requests
        steps: tokens of each chain that it draws; 0 for none

    Attributes:
        size: its bytes
    """

    def __init__(self, tokens: int, requests: int, steps: int):
        # Lines of indices: ids, positions, rows, wanted; of `chain`: positions and rows of the
        # second pass, and by how much they grow in each further one.
        sizes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
            "indices": (torch.long, (4, tokens)),
            "table": (torch.int32, (5, requests + 1)),
            "temperatures": (torch.float64, (2,)),
        }
        if steps:
            sizes |= {
                "chain": (torch.long, (3, requests)),
                "later": (torch.int32, (5, requests + 1)),
                "warpings": (torch.float64, (requests, 4)),
                "numbers": (torch.float64, (steps, requests)),
            }
        # Last: only as much of them goes in as a pass has.
        sizes["masks"] = torch.bool, (MASKS,)
        self._places, self.size = dict[str, tuple[int, torch.dtype, tuple[int, ...]]](), 0
        for name, (dtype, shape_of) in sizes.items():
            self._places[name] = self.size, dtype, shape_of
            size = math.prod(shape_of) * dtype.itemsize
            self.size += size + -size % ALIGNED

    def of(self, memory: torch.Tensor) -> dict[str, torch.Tensor]:
        """The tensors that lie in memory of bytes, whose masks may be cut short."""
        tensors = {}
        for name, (begin, dtype, shape) in self._places.items():
            size = math.prod(shape) * dtype.itemsize
            tensors[name] = memory[begin : begin + size].view(dtype).view(*shape[:-1], -1)
        return tensors

    def bytes(self, masks: int) -> int:
        """How many bytes go in with so many numbers of masks."""
        return self._places["masks"][0] + masks


def missing_ancestors(tree: TokenTree, cache: CacheRows, wanted: Sequence[NodeId]) -> list[NodeId]:
    """The wanted nodes and all their ancestors that have no row yet, parents first."""
    missing: set[NodeId] = set()
    for node in wanted:
        while node >= 0 and node not in cache.row and node not in missing:
            missing.add(node)
            node = tree.parents[node]
    return sorted(missing)


def pack(
    feeds: Sequence[Feed],
    arena: Arena,
    by_request: bool = False,
    window: int = 0,
    stay: bool = False,
) -> PackedInputs:
    """Join the feeds, one after another, and give their tokens cache rows.

    Args:
        feeds: what each request feeds
        arena: the arena of their caches
        by_request: whether attention takes one request after another, without a table
        window: how many rows, its own included, a token of a chain sees; 0 for all
        stay: whether tensors stay on the host, for whoever brings them to the device
    """
    device = arena.keys[0].device
    masks = [arena.append(feed.cache, feed.tree, feed.nodes) for feed in feeds]
    tokens = [feed.tree.tokens[node] for feed in feeds for node in feed.nodes]
    positions = [feed.tree.depths[node] for feed in feeds for node in feed.nodes]
    rows: list[int] = []
    wanted: list[int] = []
    for feed in feeds:
        past = len(feed.cache) - len(feed.nodes)
        wanted += [len(rows) + feed.cache.row[node] - past for node in feed.wanted]
        rows += range(feed.cache.base + past, feed.cache.base + len(feed.cache))
    segments, visible = segments_of(feeds, masks)
    table = NOTHING if by_request else table_of(segments)
    numbers: list[Sequence] = [[tokens], [positions], rows, wanted]
    every = [*map(_integers, numbers), table, visible]
    stay = stay or device_of(device).on_host
    every = every if stay else [tensor.to(device) for tensor in every]
    ids, places, into, answered, table, visible = every
    packing = Packing(
        into,
        _integers(segments),
        table,
        visible,
        arena.keys,
        arena.values,
        window,
        arena.scratch,
    )
    return PackedInputs(ids, places, answered, packing)


def brought(inputs: PackedInputs) -> PackedInputs:
    """A pass whose tensors have stayed on the host, brought to the device."""
    ids, places, wanted, packing = inputs
    device = packing.keys[0].device
    tensors = ids, places, wanted, packing.rows, packing.table, packing.masks
    ids, places, wanted, rows, table, masks = (tensor.to(device) for tensor in tensors)
    return PackedInputs(ids, places, wanted, replace(packing, rows=rows, table=table, masks=masks))


def _integers(numbers: Sequence) -> torch.Tensor:
    # Of nothing, numpy makes an array without strides, whose bytes torch does not view.
    return torch.from_numpy(np.array(numbers, np.int64)) if numbers else torch.empty(0).long()


def segments_of(
    feeds: Sequence[Feed], masks: Sequence[Mask | None]
) -> tuple[list[tuple[int, ...]], torch.Tensor]:
    """The segments of a Packing, and its masks, which are on the host."""
    segments: list[tuple[int, ...]] = []
    flat: list[np.ndarray] = []
    start = place = 0
    for feed, mask in zip(feeds, masks, strict=True):
        n, past = len(feed.nodes), len(feed.cache) - len(feed.nodes)
        begin, opening = (place, mask.start) if mask else (-1, past)
        segments.append((start, start + n, feed.cache.base, past, begin, opening))
        start += n
        if mask:
            flat.append(mask.visible.ravel())
            place += mask.visible.size
    return segments, torch.from_numpy(np.concatenate(flat)) if flat else NOTHING


def table_of(segments: Sequence[tuple[int, ...]]) -> torch.Tensor:
    table = [
        (start, base, past + stop - start, mask, opening)
        for start, stop, base, past, mask, opening in segments
    ]
    table.append((segments[-1][1], 0, 0, -1, 0))
    return torch.from_numpy(np.array(table, np.int32).T.copy())


Caches = tuple[CacheRows, ...]  # those of one request, one for each arena


class Arenas:
    """One arena for all layers that see equally far back and are on one device, the farthest first.

    Args:
        layout: the contents of each layer's cache
        dtype: the dtype of keys and values
        device: where the model takes its tokens
        rows: rows to begin with, in layers that see everything
        most: the most rows of each arena, or None for no limit
        kind: the kind of rows in layers that see everything

    Attributes:
        layout, most, kind, dtype, device: as given
        reaches: for each arena, how far back its layers see; None for everything
        each: the arenas
        places: for each layer, its arena and its number there; layers that share keys and values
            share a place
        row_bytes: for each arena, bytes of a row in all its layers
    """

    def __init__(
        self,
        layout: Sequence[Layout],
        dtype: torch.dtype,
        device: torch.device,
        rows: int = 0,
        most: int | None = None,
        kind: type[CacheRows] = CacheRows,
    ):
        self.layout, self.most, self.kind = layout, most, kind
        self.dtype, self.device = dtype, device
        alike: dict[tuple[Reach | None, torch.device], list[int]] = defaultdict(list)
        for i, layer in enumerate(layout):
            if layer.owner == i:
                alike[layer.reach, layer.device].append(i)
        places = sorted(alike, key=lambda place: -place[0].size if place[0] else -math.inf)
        self.reaches, groups = [reach for reach, _ in places], [alike[place] for place in places]
        self.each = [
            Arena(
                [layout[i].sizes for i in group],
                dtype,
                place,
                rows if reach is None else 0,
                most,
                kind if reach is None else partial(ReachRows, reach=reach),
            )
            for group, (reach, place) in zip(groups, places, strict=True)
        ]
        place_of = {
            i: (number, group.index(i)) for number, group in enumerate(groups) for i in group
        }
        self.places = tuple(place_of[layer.owner] for layer in layout)
        numbers = [heads * (k + v) for heads, k, v in (layer.sizes for layer in layout)]
        self.row_bytes = [sum(numbers[i] for i in group) * dtype.itemsize for group in groups]

    @property
    def simple(self) -> bool:
        """Whether there is a single arena in which each layer has separate rows."""
        return self.places == tuple((0, i) for i in range(len(self.places)))

    def take(self, rows: int, prompt: int) -> Caches | None:
        """Reserve stretches for a request; None if there is no room.

        Args:
            rows: rows that it may need in layers that see everything
            prompt: the number of its prompt tokens
        """
        caches: list[CacheRows] = []
        for arena, reach in zip(self.each, self.reaches, strict=True):
            enough = rows
            if reach is not None and self.most is None:
                enough = min(rows, max(prompt, 2 * reach.size) + 64)
            if (cache := arena.take(enough)) is None:
                self.give_back(caches)
                return None
            caches.append(cache)
        return tuple(caches)

    def give_back(self, caches: Sequence[CacheRows]) -> None:
        for arena, cache in zip(self.each, caches, strict=False):
            arena.give_back(cache)

    def sync(self, requests: Sequence[tuple[Caches, TokenTree]]) -> None:
        """Drop the rows of nodes that their trees dropped, and those that no later token sees.

        Args:
            requests: the caches and the tree of each
        """
        for place, arena in enumerate(self.each):
            arena.sync((caches[place], tree) for caches, tree in requests)

    def pack(
        self,
        feeds: Sequence[Feed],
        caches: dict[TokenTree, Caches],
        by_request: bool,
        stay: bool = False,
    ) -> PackedInputs:
        """Make the tensors of a pass.

        Args:
            feeds: what each request feeds, with its cache in the first arena
            caches: the caches of each request
            by_request: whether attention takes one request after another
            stay: see `pack`; there must be one arena
        """
        packed = []
        for place, (arena, reach) in enumerate(zip(self.each, self.reaches, strict=True)):
            if place:
                feeds = [replace(feed, cache=caches[feed.tree][place]) for feed in feeds]
            packed.append(pack(feeds, arena, by_request, reach.window if reach else 0, stay))
        if self.simple:
            return packed[0]
        packings = tuple(inputs.packing for inputs in packed)
        # Layers may be on other devices than the one where the model takes its tokens.
        ids, positions, wanted = (tensor.to(self.device) for tensor in packed[0][:3])
        return PackedInputs(ids, positions, wanted, Layered(packings, self.places))

    def expect(self, rows: int) -> None:
        """Say how many rows the next requests may need together, in layers that see everything."""
        for arena, reach in zip(self.each, self.reaches, strict=True):
            arena.expected = rows if reach is None else 0

    @property
    def size(self) -> int:
        return sum(arena.rows * size for arena, size in zip(self.each, self.row_bytes, strict=True))

    def bytes(self, caches: Caches) -> int:
        return sum(len(cache) * size for cache, size in zip(caches, self.row_bytes, strict=True))


class Idle:
    """Arenas that no request uses, kept for the next run. Runs may come from several threads."""

    def __init__(self) -> None:
        self._arenas, self._lock = list[Arenas](), Lock()

    def take(self, kind: type[CacheRows], most: int | None = None) -> Arenas | None:
        """Take arenas with this kind of rows and this limit, if there are any."""
        with self._lock:
            for place, arenas in enumerate(self._arenas):
                if arenas.kind is kind and arenas.most == most:
                    return self._arenas.pop(place)
        return None

    def keep(self, arenas: Arenas) -> bool:
        """Keep arenas; of those with a limit all have the same."""
        with self._lock:
            if arenas.most is not None:
                self._arenas = [a for a in self._arenas if a.most in (None, arenas.most)]
            self._arenas.append(arenas)
        return True
