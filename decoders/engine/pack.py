"""The tensors of one pass (PackedInputs), made from the nodes that each request feeds (Feed).

The cache memory of one run on a model is Arenas: layers that do not all see equally far back have
separate rows, and so do the layers of each device. Arenas that no run uses wait in Idle.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import NamedTuple, cast

import numpy as np
import torch

from decoders.devices import device_of
from decoders.engine.attention.interface import Layered, Packing, Span, needs_biases
from decoders.engine.cache import Arena, CacheRows, Layout, Mask, Reach, ReachRows
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
        by_request: whether attention needs only the `parts`
        window: how many rows, its own included, a token of a chain sees; 0 for all
        stay: whether tensors stay on the host, for whoever brings them to the device
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
    every = [*map(_integers, numbers), table, visible, biases]
    every = every if stay else moved(every, device)
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
        arena,
    )
    return PackedInputs(ids, places, answered, packing)


def brought(inputs: PackedInputs, device: torch.device) -> PackedInputs:
    """A pass whose tensors have stayed on the host, brought to the device in one transfer."""
    packing = cast(Packing, inputs.packing)
    tensors = [*inputs[:3], packing.rows, packing.table, packing.masks, packing.biases]
    ids, places, wanted, rows, table, masks, biases = moved(tensors, device)
    packing = replace(packing, rows=rows, table=table, masks=masks, biases=biases)
    return PackedInputs(ids, places, wanted, packing)


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
) -> tuple[Span, ...]:
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
        requests.append(Span(start, start + n, bias, causal, *cached))
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
    table = [
        (start, base, past + stop - start, mask, opening)
        for start, stop, base, past, mask, _, opening in segments
    ]
    table.append((segments[-1][1], 0, 0, -1, 0))
    return (
        _integers(segments),
        torch.from_numpy(np.array(table, np.int32).T.copy()),
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

    def sync(self, requests: Sequence[tuple[Caches, TokenTree]], later: bool = False) -> None:
        """Drop the rows of nodes that their trees dropped, and those that no later token sees.

        Args:
            requests: the caches and the tree of each
            later: see `Arena.sync`
        """
        for place, arena in enumerate(self.each):
            arena.sync(((caches[place], tree) for caches, tree in requests), later)

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

    def take(self, kind: type[CacheRows], most: int | None = None) -> Arenas | None:
        """Take arenas with this kind of rows and this limit, if there are any."""
        with self._lock:
            for place, arenas in enumerate(self._arenas):
                if arenas.kind is kind and arenas.most == most:
                    return self._arenas.pop(place)
        return None

    def keep(self, arenas: Arenas) -> bool:
        """Keep arenas, perhaps instead of older ones; return whether they were kept.

        Of those with a limit all have the same.
        """
        with self._lock:
            if arenas.most is not None:
                self._arenas = [a for a in self._arenas if a.most in (None, arenas.most)]
            if self.most is not None:
                if arenas.size > self.most:
                    return False
                while sum(a.size for a in (*self._arenas, arenas)) > self.most:
                    self._arenas.pop(0)
            self._arenas.append(arenas)
            return True
