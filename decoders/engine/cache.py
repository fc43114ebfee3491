"""Key-value rows: which row holds which node of a request (CacheRows), and their memory (Arena)."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from decoders.shapes import NodeId
from decoders.tree import TokenTree


class CacheRows:
    """The rows of one request in one model's arena: row `base + r` holds `nodes[r]`.

    The first `trunk` rows hold the first nodes of the tree's trunk in order and never move; the rows after them, the tail, hold
    whatever was fed since. A dead row at the end is dropped at once; dead rows in between are squeezed out when they are more
    than half of all. `visible[i, j]` says whether tail row i descends from (or is) tail row j. The first `settled` rows cannot die.
    """

    def __init__(self, base: int, capacity: int):
        self.base, self.capacity = base, capacity
        self.nodes: list[NodeId] = []
        self.row: dict[NodeId, int] = {}
        self.trunk = self.settled = 0
        self.visible = np.zeros((16, 16), dtype=bool)

    def __len__(self) -> int:
        return len(self.nodes)

    def sync(self, tree: TokenTree) -> list[int] | None:
        """Drop the rows of nodes that the tree dropped. If that squeezes the tail, return the old rows of what is now rows trunk .. end."""
        live = set(tree.tail)
        rows = range(self.settled, len(self.nodes))
        dead = [r for r in rows if self.nodes[r] not in live and not self.lasts(self.nodes[r], tree)]
        while dead and dead[-1] == len(self.nodes) - 1:
            dead.pop()
            self.drop_last()
        moved = None
        if 2 * len(dead) > len(self.nodes):
            gone = set(dead)
            moved = [r for r in range(self.trunk, len(self.nodes)) if r not in gone]
            keep = np.array(moved, dtype=int) - self.trunk
            self.visible[: len(keep), : len(keep)] = self.visible[np.ix_(keep, keep)]
            for r in dead:
                del self.row[self.nodes[r]]
            self.nodes[self.trunk :] = [self.nodes[r] for r in moved]
            self.row.update((n, r) for r, n in enumerate(self.nodes[self.trunk :], self.trunk))
        while self.settled < len(self.nodes) and self.lasts(self.nodes[self.settled], tree):
            self.settled += 1
        if shift := self._lengthen_trunk(tree):
            size = len(self.nodes) - self.trunk
            self.visible[:size, :size] = self.visible[shift : shift + size, shift : shift + size].copy()
        return moved

    def append(self, tree: TokenTree, nodes: Sequence[NodeId]) -> np.ndarray | None:
        """Give `nodes` (parents first) the next rows. Returns which rows each may see, (nodes, rows) bool, or None if they are a chain
        that sees every row before it."""
        past = len(self.nodes)
        chain = tree.depths[nodes[0]] == past and all(tree.parents[b] == a for a, b in pairwise(nodes))
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
        mask = np.tri(len(nodes), len(self.nodes), past, dtype=bool)
        mask[first - past :, self.trunk :] = self.visible[first - self.trunk : tail, :tail]
        return mask

    def lasts(self, node: NodeId, tree: TokenTree) -> bool:
        """Whether the row of this node cannot die any more."""
        return tree.in_trunk(node)

    def drop_last(self) -> None:
        del self.row[self.nodes.pop()]

    def _grow_visible(self) -> int:
        """Make `visible` large enough for the tail; return the number of rows in the tail."""
        tail = len(self.nodes) - self.trunk
        if tail > len(self.visible):
            grown = np.zeros((2 * tail, 2 * tail), dtype=bool)
            grown[: len(self.visible), : len(self.visible)] = self.visible
            self.visible = grown
        return tail

    def _lengthen_trunk(self, tree: TokenTree) -> int:
        """Extend `trunk` over the rows that continue it; return how many were added."""
        before = self.trunk
        while self.trunk < min(len(self.nodes), len(tree.trunk)) and self.nodes[self.trunk] == tree.trunk[self.trunk]:
            self.trunk += 1
        return self.trunk - before


class Arena:
    """The keys and values of one model for all its requests: two tensors (rows, K, D) per layer, of which each request has a stretch.
    Layers of one shape are slices of one tensor, so that what concerns all of them is one operator.

    layout          for each layer (K, D of keys, D of values)
    expected, most  rows to begin with, and the most there may be
    kind            the class of the stretches
    A request gets the first stretch that is free and large enough; if there is none, the arena grows.
    """

    def __init__(
        self,
        layout: Sequence[tuple[int, int, int]],
        dtype: torch.dtype,
        device: torch.device,
        expected: int = 0,
        most: int | None = None,
        kind: type[CacheRows] = CacheRows,
    ):
        self.expected, self.most, self.kind = expected, most, kind
        uniform = len(set(layout)) == 1
        groups = [(len(layout), *layout[0])] if uniform else [(1, *sizes) for sizes in layout]

        def empty(layers: int, heads: int, size: int) -> torch.Tensor:
            return torch.empty(layers, 0, heads, size, dtype=dtype, device=device)

        self._key_slabs = [empty(layers, heads, size) for layers, heads, size, _ in groups]
        self._value_slabs = [empty(layers, heads, size) for layers, heads, _, size in groups]
        self._name_layers()
        self._taken: list[CacheRows] = []

    def _name_layers(self) -> None:
        self.keys = [layer for slab in self._key_slabs for layer in slab.unbind()]
        self.values = [layer for slab in self._value_slabs for layer in slab.unbind()]

    def windows(self, begin: int, end: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Views of these rows as attention reads them: keys and values of each layer, (1, K, rows, D)."""
        keys, values = (
            [layer for slab in slabs for layer in slab[:, None, begin:end].transpose(2, 3).unbind()]
            for slabs in (self._key_slabs, self._value_slabs)
        )
        return keys, values

    @property
    def rows(self) -> int:
        return len(self.keys[0])

    def take(self, capacity: int) -> CacheRows | None:
        """A free stretch of `capacity` rows, or None if the arena is full."""
        base = 0
        for other in self._taken:
            if other.base - base >= capacity:
                break
            base = other.base + other.capacity
        if base + capacity > self.rows:
            if self.most is not None and base + capacity > self.most:
                return None
            # The limit is on the peak, and growing step by step would hold old and new rows at the same time.
            self._grow(self.most or max(base + capacity, self.rows * 3 // 2, self.expected))
        cache = self.kind(base, capacity)
        self._taken.append(cache)
        self._taken.sort(key=lambda c: c.base)
        return cache

    def give_back(self, cache: CacheRows) -> None:
        self._taken.remove(cache)

    def make_room(self, cache: CacheRows, extra: int) -> None:
        """Make `extra` more rows fit, by a move to a stretch of twice the size if they do not."""
        if len(cache) + extra <= cache.capacity:
            return
        place = self.take(2 * (len(cache) + extra))
        if place is None:
            raise RuntimeError("a request took more cache rows than its decoder said it would")
        for slab in (*self._key_slabs, *self._value_slabs):
            slab[:, place.base : place.base + len(cache)] = slab[:, cache.base : cache.base + len(cache)]
        self._taken.remove(place)
        cache.base, cache.capacity = place.base, place.capacity
        self._taken.sort(key=lambda c: c.base)

    def sync(self, cache: CacheRows, tree: TokenTree) -> None:
        """Drop the rows of nodes that the tree dropped, and close the gaps if they are more than half."""
        moved = cache.sync(tree)
        if moved is not None:
            self.squeeze(cache, moved)

    def append(self, cache: CacheRows, tree: TokenTree, nodes: Sequence[NodeId]) -> np.ndarray | None:
        """Give `nodes` the next rows of a cache, which moves if it is full. Returns the mask of `CacheRows.append`."""
        self.make_room(cache, len(nodes))
        return cache.append(tree, nodes)

    def squeeze(self, cache: CacheRows, moved: Sequence[int]) -> None:
        """Move the rows `moved` of a cache to its rows from `trunk` on."""
        start = len(cache) - len(moved) + cache.base
        old = torch.tensor(moved, device=self.keys[0].device) + cache.base
        for slab in (*self._key_slabs, *self._value_slabs):
            slab[:, start : start + len(moved)] = slab[:, old]

    def _grow(self, rows: int) -> None:
        for slabs in (self._key_slabs, self._value_slabs):
            for i, old in enumerate(slabs):
                slabs[i] = old.new_empty(len(old), rows, *old.shape[2:])
                slabs[i][:, : old.shape[1]] = old
        self._name_layers()
