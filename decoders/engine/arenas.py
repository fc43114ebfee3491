"""The cache memory of one run on a model (Arenas): layers that do not all see equally far have rows of their own (ReachRows), and so do
those of each device."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import numpy as np
import torch

from decoders.engine.attention import Layered, Packing
from decoders.engine.cache import Arena, CacheRows, Mask
from decoders.engine.packing import Feed, PackedInputs, pack
from decoders.engine.probe import Layout
from decoders.engine.reach import Reach
from decoders.shapes import NodeId
from decoders.tree import TokenTree

Caches = tuple[CacheRows, ...]  # of one request, one for each arena


class ReachRows(CacheRows):
    """The rows of layers that see only so far back: those of the trunk that no later token sees are given back once they are as many as
    a window or chunk holds. So there are never many more than two windows of them."""

    def __init__(self, base: int, capacity: int, reach: Reach):
        super().__init__(base, capacity)
        self.reach = reach

    def stamp(self, tree: TokenTree) -> object:
        """Also a prompt that is fed in parts leaves rows behind that no later token sees."""
        return tree.commits, len(self.nodes)

    def expired(self, tree: TokenTree) -> int:
        fed = len(tree.trunk)
        while fed > self.first and tree.trunk[fed - 1] not in self.row:
            fed -= 1
        # The last one stays: it tells that those before it have been fed.
        unseen = min(int(self.reach.first(fed)), fed - 1) - self.first
        return min(unseen, self.trunk) if unseen >= self.reach.size else 0

    def append(self, tree: TokenTree, nodes: Sequence[NodeId]) -> Mask | None:
        """As of `CacheRows`; there is no mask for a chain in a sliding window either."""
        mask, n = super().append(tree, nodes), len(nodes)
        asked = np.array([tree.depths[node] for node in nodes])
        if self.reach.first(asked.max()) <= self.first or (mask is None and self.reach.window):
            return mask
        start, seen = mask or (len(self.nodes) - n, np.tri(n, dtype=bool))
        later = [tree.depths[node] for node in self.nodes[self.trunk :]]
        depths = np.concatenate([np.arange(self.first, self.first + self.trunk), np.array(later, dtype=int)])
        seen = np.concatenate([np.ones((n, start), dtype=bool), seen], 1)
        return Mask(0, seen & (depths >= self.reach.first(asked)[:, None]))


class Arenas:
    """One arena for all layers that see equally far and are on one device, those of the farthest first.

    device   where the model takes its tokens;   reaches  how far back the layers of each arena see
    places   for each layer its arena, and which of the layers it is there: layers that share keys and values share a place
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
        self.most, self.kind, self.device = most, kind, device
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
        found = {i: (number, group.index(i)) for number, group in enumerate(groups) for i in group}
        self.places = tuple(found[layer.owner] for layer in layout)
        self.row_bytes = [sum(layout[i].row_size for i in group) * dtype.itemsize for group in groups]

    @property
    def simple(self) -> bool:
        """Whether each layer has rows of its own in the one arena."""
        return self.places == tuple((0, i) for i in range(len(self.places)))

    def take(self, rows: int, prompt: int) -> Caches | None:
        """Stretches for a request that has `prompt` tokens and may take `rows` in layers that see all; None if there is no room."""
        caches: list[CacheRows] = []
        for arena, reach in zip(self.each, self.reaches, strict=True):
            enough = rows if reach is None or self.most is not None else min(rows, max(prompt, 2 * reach.size) + 64)
            if (cache := arena.take(enough)) is None:
                self.give_back(caches)
                return None
            caches.append(cache)
        return tuple(caches)

    def give_back(self, caches: Sequence[CacheRows]) -> None:
        for arena, cache in zip(self.each, caches, strict=False):
            arena.give_back(cache)

    def sync(self, requests: Iterable[tuple[Caches, TokenTree]]) -> None:
        """Drop the rows of nodes that their trees dropped, and those that no later token sees."""
        requests = list(requests)
        for place, arena in enumerate(self.each):
            arena.sync((caches[place], tree) for caches, tree in requests)

    def pack(self, feeds: Sequence[Feed], caches: dict[TokenTree, Caches], by_request: bool) -> PackedInputs:
        """The tensors of a pass. `feeds` have the caches of the first arena."""
        found = []
        for place, (arena, reach) in enumerate(zip(self.each, self.reaches, strict=True)):
            if place:
                feeds = [feed.over(caches[feed.tree][place]) for feed in feeds]
            found.append(pack(feeds, arena, by_request, reach.window if reach else 0))
        if self.simple:
            return found[0]
        packings = tuple(cast(Packing, inputs.packing) for inputs in found)
        return found[0].following(Layered(packings, self.places), self.device)

    def bytes(self, caches: Caches) -> int:
        """What the rows of one request take."""
        return sum(len(cache) * size for cache, size in zip(caches, self.row_bytes, strict=True))
