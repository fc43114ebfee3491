"""The memory of cache rows (Arena): one tensor of keys and one of values for each layer."""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import torch

from decoders.devices import device_of
from decoders.engine.memory.rows import CacheRows, Mask
from decoders.engine.pages import empty
from decoders.shapes import NodeId
from decoders.tree import TokenTree


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
        self.keys, self.values = halves(
            [tensor for slab in self._slabs for tensor in slab.unbind()]
        )
        self._as_read = [slab[:, None].transpose(2, 3) for slab in self._slabs]

    def windows(self, begin: int, end: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Views of rows as attention reads them.

        Args:
            begin: the first row
            end: the row after the last

        Returns:
            the keys and the values of each layer, (1, K, rows, D)
        """
        return halves(
            [part for slab in self._as_read for part in slab.narrow(3, begin, end - begin).unbind()]
        )

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

    def set_aside(self) -> None:
        """Reserve a scratch row, if there is room for one."""
        taken = self.take(1)
        self.scratch = -1 if taken is None else taken.base

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
        """Drop the rows of nodes that their trees dropped, and close gaps where there are many."""
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

    def move(self, old: Sequence[int], new: Sequence[int]) -> None:
        places = torch.tensor([old, new], device=self.keys[0].device)
        threads = torch.get_num_threads()
        # After it, OpenMP's threads would wait in loops on the cores of those that share passes.
        torch.set_num_threads(1)
        try:
            for slab in self._slabs:
                slab[:, places[1]] = slab[:, places[0]]
        finally:
            torch.set_num_threads(threads)

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


def halves(tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return tensors[: len(tensors) // 2], tensors[len(tensors) // 2 :]
