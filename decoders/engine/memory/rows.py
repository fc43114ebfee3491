"""The cache rows of one request: which row holds which node (CacheRows).

What a row holds in a layer (Layout), and how far back the layer's tokens see (Reach).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

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
        start = min(past, self.trunk)
        visible = np.tri(len(nodes), len(self.nodes) - start, past - start, dtype=bool)
        visible[first - past :, self.trunk - start :] = self.visible[
            first - self.trunk : tail, :tail
        ]
        return Mask(start, visible)

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
