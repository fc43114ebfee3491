"""Key-value rows: which row holds which node of a request (CacheRows), and their memory (Arena)."""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch

from decoders.shapes import NodeId
from decoders.tree import TokenTree

SPARE = 8  # so many dead rows between live ones are not worth moving the others for


class Mask(NamedTuple):
    """Which rows new tokens of a request see: all before `start`, and of those from there on the ones in `seen` (tokens, rows)."""

    start: int
    seen: np.ndarray


class CacheRows:
    """The rows of one request in one model's arena: row `base + r` holds `nodes[r]`.

    The first `trunk` rows hold the first nodes of the tree's trunk in order and never move; the rows after them, the tail, hold
    whatever was fed since. A dead row at the end is dropped at once; dead rows in between are squeezed out when they are more
    than SPARE, or half of all. `visible[i, j]` says whether tail row i descends from (or is) tail row j. The first `settled` rows
    cannot die.
    """

    def __init__(self, base: int, capacity: int):
        self.base, self.capacity = base, capacity
        self.nodes: list[NodeId] = []
        self.row: dict[NodeId, int] = {}
        self.trunk = self.settled = 0
        self.first = 0  # how many nodes of the tree's trunk come before row 0
        self._stamp: object = None  # of the last sync: only when this differs are there more dead rows
        self.visible = np.zeros((16, 16), dtype=bool)

    def __len__(self) -> int:
        return len(self.nodes)

    def sync(self, tree: TokenTree) -> list[int] | None:
        """Drop the rows of nodes that the tree dropped. If that squeezes the tail, return the old rows of what is now rows trunk .. end."""
        if (stamp := self.stamp(tree)) == self._stamp:
            return None
        self._stamp, live = stamp, set(tree.tail)
        rows = range(self.settled, len(self.nodes))
        dead = [r for r in rows if self.nodes[r] not in live and not self.lasts(self.nodes[r], tree)]
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
            self.visible[:size, :size] = self.visible[shift : shift + size, shift : shift + size].copy()
        return moved

    def stamp(self, tree: TokenTree) -> object:
        """What differs when rows may have died: they do when the tree drops nodes."""
        return tree.commits

    def expired(self, tree: TokenTree) -> int:
        """How many of the first rows are to be given back, because no later token sees them."""
        return 0

    def _squeeze(self, early: int, dead: Sequence[int]) -> list[int]:
        """Forget the first `early` rows, which are of the trunk, and dead ones of the tail. Returns the old rows of what are now the
        last rows."""
        gone, start = {*range(early), *dead}, 0 if early else self.trunk
        moved = [r for r in range(start, len(self.nodes)) if r not in gone]
        keep = np.array([r for r in moved if r >= self.trunk], dtype=int) - self.trunk
        self.visible[: len(keep), : len(keep)] = self.visible[np.ix_(keep, keep)]
        for r in gone:
            del self.row[self.nodes[r]]
        self.nodes[start:] = [self.nodes[r] for r in moved]
        self.row.update((n, r) for r, n in enumerate(self.nodes[start:], start))
        self.trunk, self.settled, self.first = self.trunk - early, max(self.settled - early, 0), self.first + early
        return moved

    def append(self, tree: TokenTree, nodes: Sequence[NodeId]) -> Mask | None:
        """Give `nodes` (parents first) the next rows. Returns which rows each may see, or None if they are a chain that sees every row
        before it."""
        past = len(self.nodes)
        chain = tree.depths[nodes[0]] == past + self.first and all(tree.parents[b] == a for a, b in pairwise(nodes))
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
        start = min(past, self.trunk)
        seen = np.tri(len(nodes), len(self.nodes) - start, past - start, dtype=bool)
        seen[first - past :, self.trunk - start :] = self.visible[first - self.trunk : tail, :tail]
        return Mask(start, seen)

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
        trunk, most = tree.trunk, min(len(self.nodes), len(tree.trunk) - self.first)
        while self.trunk < most and self.nodes[self.trunk] == trunk[self.trunk + self.first]:
            self.trunk += 1
        return self.trunk - before


class Arena:
    """The keys and values of one model for all its requests: two tensors (rows, K, D) per layer, of which each request has a stretch.
    Neighbours of one shape are slices of one tensor, a slab, so that what concerns all of them is one operator.

    layout          for each layer (K, D of keys, D of values)
    expected, most  rows to begin with, and the most there may be
    kind            makes a stretch of its base and capacity
    A request gets the first stretch that is free and large enough; if there is none, the arena grows.
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
        shapes = [("k", heads, size) for heads, size, _ in layout] + [("v", heads, size) for heads, _, size in layout]
        # Keys and values never share a slab: of a layer's two writes into one tensor, Inductor keeps one.
        self._slabs = [
            torch.empty(len(list(alike)), 0, *shape, dtype=dtype, device=device)
            for (_, *shape), alike in groupby(shapes)
        ]
        self._name_layers()
        self._taken: list[CacheRows] = []
        self.scratch = (
            -1
        )  # a row that no request has, if there is one: passes of fixed shapes write there what nobody reads

    def _name_layers(self) -> None:
        self.keys, self.values = halves([tensor for slab in self._slabs for tensor in slab.unbind()])
        self._as_read = [slab[:, None].transpose(2, 3) for slab in self._slabs]

    def windows(self, begin: int, end: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Views of these rows as attention reads them: keys and values of each layer, (1, K, rows, D)."""
        return halves([part for slab in self._as_read for part in slab.narrow(3, begin, end - begin).unbind()])

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

    def set_aside(self) -> None:
        """Have a scratch row, if there is room for one."""
        taken = self.take(1)
        self.scratch = -1 if taken is None else taken.base

    def give_back(self, cache: CacheRows) -> None:
        self._taken.remove(cache)

    def make_room(self, cache: CacheRows, extra: int) -> None:
        """Make `extra` more rows fit, by a move to a stretch of twice the size if they do not."""
        if len(cache) + extra <= cache.capacity:
            return
        place = self.take(2 * (len(cache) + extra))
        if place is None:
            raise RuntimeError("a request took more cache rows than its decoder said it would")
        for slab in self._slabs:
            slab[:, place.base : place.base + len(cache)] = slab[:, cache.base : cache.base + len(cache)]
        self._taken.remove(place)
        cache.base, cache.capacity = place.base, place.capacity
        self._taken.sort(key=lambda c: c.base)

    def sync(self, requests: Iterable[tuple[CacheRows, TokenTree]]) -> None:
        """Drop the rows of nodes that their trees dropped, and close the gaps of those that have many."""
        old: list[int] = []
        new: list[int] = []
        for cache, tree in requests:
            if (moved := cache.sync(tree)) is not None:
                old += [cache.base + row for row in moved]
                end = cache.base + len(cache)
                new += range(end - len(moved), end)
        if old:
            self.move(old, new)

    def append(self, cache: CacheRows, tree: TokenTree, nodes: Sequence[NodeId]) -> Mask | None:
        """Give `nodes` the next rows of a cache, which moves if it is full. Returns the mask of `CacheRows.append`."""
        self.make_room(cache, len(nodes))
        return cache.append(tree, nodes)

    def move(self, old: Sequence[int], new: Sequence[int]) -> None:
        """Move rows to others, all at once."""
        places = torch.tensor([old, new], device=self.keys[0].device)
        for slab in self._slabs:
            slab[:, places[1]] = slab[:, places[0]]

    @torch.inference_mode(False)  # one kind of tensor, whoever asks: compiled passes tell them apart
    def _grow(self, rows: int) -> None:
        for i, old in enumerate(self._slabs):
            self._slabs[i] = old.new_empty(len(old), rows, *old.shape[2:])
            self._slabs[i][:, : old.shape[1]] = old
        self._name_layers()


def halves(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The keys and the values of a list that has all keys first."""
    return tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
