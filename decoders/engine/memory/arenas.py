"""The cache memory of one run on a model (Arenas), and arenas that wait for the next run (Idle).

Layers that do not all see equally far back have separate rows (ReachRows), and so do the layers of
each device.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import cast

import numpy as np
import torch

from decoders.engine.attention.interface import Layered, Packing
from decoders.engine.memory.arena import Arena
from decoders.engine.memory.feeds import Feed, PackedInputs, pack
from decoders.engine.memory.rows import CacheRows, Layout, Mask, Reach
from decoders.shapes import NodeId
from decoders.tree import TokenTree

Caches = tuple[CacheRows, ...]  # those of one request, one for each arena


class ReachRows(CacheRows):
    """The rows of layers that see back only a certain distance.

    Rows of the trunk that no later token sees are given back once they are as many as a window or
    chunk holds. So there are never many more than two windows of rows.

    Args:
        base: the first arena row
        capacity: the number of arena rows
        reach: how far back the layers see
    """

    def __init__(self, base: int, capacity: int, reach: Reach):
        super().__init__(base, capacity)
        self.reach = reach

    def stamp(self, tree: TokenTree) -> object:
        """As in `CacheRows`; parts of a prompt, too, leave rows behind that no later token sees."""
        return tree.commits, len(self.nodes)

    def expired(self, tree: TokenTree) -> int:
        fed = self.fed(tree)
        # The last one stays: it shows that those before it have been fed.
        unseen = min(int(self.reach.first(fed)), fed - 1) - self.first
        return min(unseen, self.trunk) if unseen >= self.reach.size else 0

    def append(self, tree: TokenTree, nodes: Sequence[NodeId]) -> Mask | None:
        """As in `CacheRows`; a chain in a sliding window needs no mask either."""
        mask, n = super().append(tree, nodes), len(nodes)
        places = np.array([tree.depths[node] for node in nodes])
        if self.reach.first(places.max()) <= self.first or (mask is None and self.reach.window):
            return mask
        start, visible = mask or (len(self.nodes) - n, np.tri(n, dtype=bool))
        later = [tree.depths[node] for node in self.nodes[self.trunk :]]
        depths = np.concatenate(
            [np.arange(self.first, self.first + self.trunk), np.array(later, dtype=int)]
        )
        visible = np.concatenate([np.ones((n, start), dtype=bool), visible], 1)
        return Mask(0, visible & (depths >= self.reach.first(places)[:, None]))


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
        """Drop the rows of nodes that their trees dropped, and those that no later token sees."""
        for place, arena in enumerate(self.each):
            arena.sync((caches[place], tree) for caches, tree in requests)

    def pack(
        self, feeds: Sequence[Feed], caches: dict[TokenTree, Caches], by_request: bool
    ) -> PackedInputs:
        """Make the tensors of a pass.

        Args:
            feeds: what each request feeds, with its cache in the first arena
            caches: the caches of each request
            by_request: whether attention takes one request after another
        """
        packed = []
        for place, (arena, reach) in enumerate(zip(self.each, self.reaches, strict=True)):
            if place:
                feeds = [replace(feed, cache=caches[feed.tree][place]) for feed in feeds]
            packed.append(pack(feeds, arena, by_request, reach.window if reach else 0))
        if self.simple:
            return packed[0]
        packings = tuple(cast(Packing, inputs.packing) for inputs in packed)
        # Layers may be on other devices than the one where the model takes its tokens.
        ids, positions, wanted = (tensor.to(self.device) for tensor in packed[0][:3])
        return PackedInputs(ids, positions, wanted, Layered(packings, self.places))

    def expect(self, rows: int) -> None:
        """Say how many rows the next requests may need together, in layers that see everything."""
        for arena, reach in zip(self.each, self.reaches, strict=True):
            arena.expected = rows if reach is None else 0

    @property
    def size(self) -> int:
        """Bytes of all rows, used or not."""
        return sum(arena.rows * size for arena, size in zip(self.each, self.row_bytes, strict=True))

    def bytes(self, caches: Caches) -> int:
        """Bytes of the rows of one request."""
        return sum(len(cache) * size for cache, size in zip(caches, self.row_bytes, strict=True))


class Idle:
    """Arenas that no request uses, kept for the next run. Runs may come from several threads.

    Args:
        most: the most bytes that all of them together may have, or None for no limit
    """

    def __init__(self, most: int | None):
        self.most, self._arenas, self._lock = most, list[Arenas](), Lock()

    @property
    def arenas(self) -> tuple[Arenas, ...]:
        """Those that wait, the oldest first."""
        return tuple(self._arenas)

    def take(self, kind: type[CacheRows]) -> Arenas | None:
        """Take arenas with this kind of rows, if there are any."""
        with self._lock:
            for place, arenas in enumerate(self._arenas):
                if arenas.kind is kind:
                    return self._arenas.pop(place)
        return None

    def keep(self, arenas: Arenas) -> bool:
        """Keep arenas, perhaps instead of older ones; return whether they were kept."""
        with self._lock:
            if self.most is not None:
                if arenas.size > self.most:
                    return False
                while sum(a.size for a in (*self._arenas, arenas)) > self.most:
                    self._arenas.pop(0)
            self._arenas.append(arenas)
            return True
