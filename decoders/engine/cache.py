"""The memory of cache rows: those of one request (CacheRows), and of all requests (Arena).

A row holds the keys and values of one node in one layer. CacheRows says which row holds which node,
Layout what a row holds, Reach how far back a layer's tokens see. An Arena has one tensor of keys
and one of values for each layer.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from decoders.devices import device_of
from decoders.engine.weights import empty
from decoders.process import one_thread
from decoders.shapes import NodeId
from decoders.tree import TokenTree

SPARE = 8  # compact only above this many dead rows between live ones


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a token sees. None in place of a Reach stands for everything.

    Attributes:
        size: tokens of a sliding window, which ends with the token itself, or of a chunk
        chunked: whether a token sees from the last multiple of `size` on, instead of a window
    """

    size: int
    chunked: bool = False

    def first(self, depth: Any) -> Any:
        """The least depth that a token sees.

        Args:
            depth: the token's depth, or an array of depths
        """
        return (
            depth // self.size * self.size
            if self.chunked
            else np.maximum(depth - (self.size - 1), 0)
        )

    @property
    def window(self) -> int:
        """The size of a sliding window, else 0; attention hides the rows of a chain beyond it."""
        return 0 if self.chunked else self.size


@dataclass(frozen=True, slots=True)
class Layout:
    """The contents of a layer's cache.

    Attributes:
        sizes: (K, D of keys, D of values)
        reach: how far back the layer sees; None for everything
        owner: the number of the layer whose keys and values it uses, usually its own
        device: where the layer is
    """

    sizes: tuple[int, int, int]
    reach: Reach | None
    owner: int
    device: torch.device


class Mask(NamedTuple):
    """The rows that new tokens of a request see.

    Attributes:
        start: they see all rows before this one
        visible: which rows from `start` on each of them sees, (tokens, rows)
    """

    start: int
    visible: np.ndarray


class CacheRows:
    """The rows of one request in one model's arena: row `base + r` holds `nodes[r]`.

    The first `trunk` rows hold the first nodes of the tree's trunk in order and never move. The
    rows after them, the tail, hold whatever was fed since. A dead row at the end is dropped at
    once. Dead rows in between are squeezed out when they are more than SPARE, or more than half of
    all.

    Args:
        base: the first arena row
        capacity: the number of arena rows

    Attributes:
        nodes: the node of each row
        row: the row of each node
        trunk: the number of rows before the tail
        settled: the number of first rows that cannot die
        first: the number of nodes of the tree's trunk before row 0
        visible: `visible[i, j]` says whether tail row i descends from (or is) tail row j
    """

    def __init__(self, base: int, capacity: int):
        self.base, self.capacity = base, capacity
        self.nodes: list[NodeId] = []
        self.row: dict[NodeId, int] = {}
        self.trunk = self.settled = self.first = 0
        # That of the last sync; more rows have died only if it differs now.
        self._stamp: object = None
        self.visible = np.zeros((16, 16), dtype=bool)

    def __len__(self) -> int:
        return len(self.nodes)

    def sync(self, tree: TokenTree) -> list[int] | None:
        """Drop the rows of nodes that the tree dropped.

        Args:
            tree: the request's tree

        Returns:
            if the remaining rows move, the old rows of those that are now last; else None
        """
        if (stamp := self.stamp(tree)) == self._stamp:
            return None
        self._stamp, live = stamp, set(tree.tail)
        dead = [
            r
            for r, node in enumerate(self.nodes[self.settled :], self.settled)
            if node not in live and not self.lasts(node, tree)
        ]
        while dead and dead[-1] == len(self.nodes) - 1:
            dead.pop()
            self.drop_last()
        moved, early = None, self.expired(tree)
        if early or len(dead) > min(SPARE, len(self.nodes) / 2):
            moved = self._squeeze(early, dead)
        while self.settled < len(self.nodes) and self.lasts(self.nodes[self.settled], tree):
            self.settled += 1
        if shift := self._lengthen_trunk(tree):
            size = len(self.nodes) - self.trunk
            self.visible[:size, :size] = self.visible[
                shift : shift + size, shift : shift + size
            ].copy()
        return moved

    def stamp(self, tree: TokenTree) -> object:
        """A value that differs when rows may have died, which happens when the tree drops nodes."""
        return tree.commits

    def expired(self, tree: TokenTree) -> int:
        """The number of first rows to give back because no later token sees them."""
        return 0

    def _squeeze(self, early: int, dead: Sequence[int]) -> list[int]:
        """Forget the first `early` rows, which are of the trunk, and dead rows of the tail.

        Returns the old rows of those that are now last.
        """
        gone, start = {*range(early), *dead}, 0 if early else self.trunk
        moved = [r for r in range(start, len(self.nodes)) if r not in gone]
        keep = np.array([r for r in moved if r >= self.trunk], dtype=int) - self.trunk
        self.visible[: len(keep), : len(keep)] = self.visible[np.ix_(keep, keep)]
        for r in gone:
            del self.row[self.nodes[r]]
        self.nodes[start:] = [self.nodes[r] for r in moved]
        self.row.update((n, r) for r, n in enumerate(self.nodes[start:], start))
        self.trunk, self.settled, self.first = (
            self.trunk - early,
            max(self.settled - early, 0),
            self.first + early,
        )
        return moved

    def append(self, tree: TokenTree, nodes: Sequence[NodeId]) -> Mask | None:
        """Give `nodes` the next rows.

        Args:
            tree: the request's tree
            nodes: the nodes, parents first

        Returns:
            the rows that each may see; None if they are a chain that sees every row before it
        """
        past = len(self.nodes)
        chain = tree.depths[nodes[0]] == past + self.first and all(
            tree.parents[b] == a for a, b in pairwise(nodes)
        )
        self.row.update((node, r) for r, node in enumerate(nodes, past))
        self.nodes += nodes
        if self.trunk == past:
            self._lengthen_trunk(tree)
        tail = self._grow_visible()
        first = max(past, self.trunk)
        for i, node in enumerate(self.nodes[first:], first - self.trunk):
            parent = self.row.get(tree.parents[node], -1) - self.trunk
            self.visible[i] = self.visible[parent] if parent >= 0 else False
            self.visible[i, i] = True
        if chain:
            return None
        visible = self.visible[first - self.trunk : tail, :tail].copy()
        if first == past:
            return Mask(self.trunk, visible)
        whole = np.tri(len(nodes), dtype=bool)
        whole[first - past :, first - past :] = visible
        return Mask(past, whole)

    def fed(self, tree: TokenTree) -> int:
        """The number of first nodes of the tree's trunk that have been fed."""
        fed = len(tree.trunk)
        while fed > self.first and tree.trunk[fed - 1] not in self.row:
            fed -= 1
        return fed

    def lasts(self, node: NodeId, tree: TokenTree) -> bool:
        """Whether the row of this node cannot die any more."""
        return tree.in_trunk(node)

    def cut(self, row: int) -> None:
        """Drop this row and all after it."""
        while len(self.nodes) > row:
            self.drop_last()
        self.trunk, self.settled = min(self.trunk, len(self)), min(self.settled, len(self))

    def drop_last(self) -> None:
        del self.row[self.nodes.pop()]

    def _grow_visible(self) -> int:
        """Make `visible` large enough for the tail; return the number of rows in the tail."""
        tail, size = len(self.nodes) - self.trunk, len(self.visible)
        if tail > size:
            self.visible = np.pad(self.visible, (0, 2 * tail - size))
        return tail

    def _lengthen_trunk(self, tree: TokenTree) -> int:
        """Extend `trunk` over the rows that continue it; return how many were added."""
        before = self.trunk
        trunk, most = tree.trunk, min(len(self.nodes), len(tree.trunk) - self.first)
        while self.trunk < most and self.nodes[self.trunk] == trunk[self.trunk + self.first]:
            self.trunk += 1
        return self.trunk - before


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


class Arena:
    """The keys and values of one model for all its requests: two tensors (rows, K, D) per layer.

    Each request has a stretch of the rows: the first one that is free and large enough. If there is
    none, the arena grows. Neighbouring layers of one shape are slices of one tensor, a slab, so one
    operator serves all of them.

    Args:
        layout: for each layer (K, D of keys, D of values)
        dtype: the dtype of keys and values
        device: where they are
        expected: rows to begin with
        most: the most rows, or None for no limit
        kind: makes a stretch, given its base and capacity

    Attributes:
        keys: the keys by layer, (rows, K, D)
        values: the values by layer, (rows, K, D)
        scratch: a row that no request has, where passes of fixed shapes write what nobody reads; -1
            if there is none
    """

    def __init__(
        self,
        layout: Sequence[tuple[int, int, int]],
        dtype: torch.dtype,
        device: torch.device,
        expected: int = 0,
        most: int | None = None,
        kind: Callable[[int, int], CacheRows] = CacheRows,
    ):
        self.expected, self.most, self.kind = expected, most, kind
        shapes = [("k", heads, size) for heads, size, _ in layout]
        shapes += [("v", heads, size) for heads, _, size in layout]
        # Keys and values never share a slab: while one grows, its old rows lie beside the new ones.
        self._slabs = [
            torch.empty(len(list(alike)), 0, *shape, dtype=dtype, device=device)
            for (_, *shape), alike in groupby(shapes)
        ]
        self._name_layers()
        self._taken: list[CacheRows] = []
        self.scratch = -1

    def _name_layers(self) -> None:
        layers = [tensor for slab in self._slabs for tensor in slab.unbind()]
        self.keys, self.values = layers[: len(layers) // 2], layers[len(layers) // 2 :]

    @property
    def rows(self) -> int:
        # Growth may have failed after some of the slabs had grown.
        return min(slab.shape[1] for slab in self._slabs)

    def take(self, capacity: int) -> CacheRows | None:
        """Reserve a free stretch of `capacity` rows; None if the arena is full."""
        base = 0
        for other in self._taken:
            if other.base - base >= capacity:
                break
            base = other.base + other.capacity
        if base + capacity > self.rows:
            if self.most is not None and base + capacity > self.most:
                return None
            # The limit is on the peak, and each step of growth would hold old and new rows at the
            # same time.
            self._grow(self.most or max(base + capacity, self.rows * 3 // 2, self.expected))
        cache = self.kind(base, capacity)
        insort(self._taken, cache, key=lambda c: c.base)
        return cache

    def give_back(self, cache: CacheRows) -> None:
        self._taken.remove(cache)

    def make_room(self, cache: CacheRows, extra: int) -> None:
        """Make room for `extra` more rows, if need be by moving to a stretch of twice the size."""
        if len(cache) + extra <= cache.capacity:
            return
        place = self.take(2 * (len(cache) + extra))
        if place is None:
            raise RuntimeError("a request needs more cache rows than its decoder announced")
        for slab in self._slabs:
            slab[:, place.base : place.base + len(cache)] = slab[
                :, cache.base : cache.base + len(cache)
            ]
        self._taken.remove(place)
        cache.base, cache.capacity = place.base, place.capacity
        self._taken.sort(key=lambda c: c.base)

    def sync(self, requests: Iterable[tuple[CacheRows, TokenTree]]) -> None:
        """Drop the rows of nodes that their trees dropped, and close gaps where there are many.

        Args:
            requests: the cache and the tree of each
        """
        old: list[int] = []
        new: list[int] = []
        for cache, tree in requests:
            if (moved := cache.sync(tree)) is not None:
                old += [cache.base + row for row in moved]
                end = cache.base + len(cache)
                new += range(end - len(moved), end)
        if old:
            self.shift(old, new)

    def append(self, cache: CacheRows, tree: TokenTree, nodes: Sequence[NodeId]) -> Mask | None:
        """Give `nodes` the next rows of a cache, which moves if it is full.

        Args:
            cache: the cache of a request
            tree: the request's tree
            nodes: the nodes, parents first

        Returns:
            the mask of `CacheRows.append`
        """
        self.make_room(cache, len(nodes))
        return cache.append(tree, nodes)

    def shift(self, old: list[int], new: list[int]) -> None:
        """Copy these rows, all at once."""
        places = torch.tensor([old, new], device=self.keys[0].device)
        with one_thread():
            for slab in self._slabs:
                slab[:, places[1]] = slab[:, places[0]]

    # Rows of an inference tensor could not be written outside of inference mode.
    @torch.inference_mode(False)
    def _grow(self, rows: int) -> None:
        before = self.rows
        try:
            for i, old in enumerate(self._slabs):
                shape = len(old), rows, *old.shape[2:]
                on_host = device_of(old.device).on_host
                self._slabs[i] = empty(shape, old.dtype) if on_host else old.new_empty(shape)
                if before:
                    self._slabs[i][:, :before] = old[:, :before]
        finally:
            self._name_layers()
