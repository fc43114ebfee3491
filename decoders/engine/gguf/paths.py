"""The sequences of a llama.cpp context as paths of token trees (Paths).

llama.cpp knows no trees. Each cell of its cache belongs to a set of sequences, and a token sees the
earlier cells of the first of its sequences. So each leaf of what has been fed of a tree is a
sequence, and a node belongs to the sequences of all leaves below it. A new branch gets a sequence
that shares the cells of the path above it; nothing is copied but numbers.

Sequences are few. If none is free, the path that was used least recently is forgotten; its nodes
are fed again if they are needed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree


@dataclass(slots=True)
class Batch:
    """The tokens of one call of llama.cpp.

    Attributes:
        tokens: their ids
        positions: their places in their texts
        sequences: the sequences that each belongs to
        wanted: whether its logits are wanted
    """

    tokens: list[TokenId]
    positions: list[int]
    sequences: list[list[int]]
    wanted: list[bool]


class Context(Protocol):
    """A cache of llama.cpp with its sequences, which are numbered from 0.

    Attributes:
        rows: its cells
        sequences: how many sequences it has
    """

    rows: int
    sequences: int

    def share(self, source: int, to: int, length: int) -> None:
        """Let a sequence that is empty have the first `length` cells of another."""

    def cut(self, sequence: int, length: int) -> None:
        """Take all cells but the first `length` away from a sequence."""

    def decode(self, batch: Batch) -> np.ndarray:
        """Feed tokens, each after those before it; return the wanted logits, (wanted, V)."""

    def clear(self) -> None:
        """Empty all sequences."""

    def close(self) -> None:
        """Free the memory."""


@dataclass(eq=False, slots=True)
class Path:
    """A sequence that holds a path from the root.

    Attributes:
        tree: the request's tree
        sequence: the number of the sequence
        nodes: the nodes whose tokens it holds, from the root on
        used: when it was last placed
    """

    tree: TokenTree
    sequence: int
    nodes: list[NodeId]
    used: int = 0

    def holds(self, node: NodeId) -> bool:
        depth = self.tree.depths[node]
        return depth < len(self.nodes) and self.nodes[depth] == node


class Paths:
    """The paths of all requests of a run.

    Args:
        context: the context with the sequences

    Attributes:
        of: the paths of each request
    """

    def __init__(self, context: Context):
        self.context = context
        self.of: dict[TokenTree, list[Path]] = {}
        self._free = list(range(context.sequences))[::-1]
        self._commits: dict[TokenTree, int] = {}
        self._clock = 0

    def add(self, tree: TokenTree) -> None:
        self.of[tree], self._commits[tree] = [], tree.commits

    def remove(self, tree: TokenTree) -> None:
        for path in self.of.pop(tree, []):
            self._forget(path)
        self._commits.pop(tree, None)

    def rows(self, tree: TokenTree) -> int:
        """The cells of a request."""
        paths, trunk = self.of[tree], len(tree.trunk)
        longest = max((len(path.nodes) for path in paths), default=0)
        later = {node for path in paths for node in path.nodes[trunk:]}
        return min(longest, trunk) + len(later)

    def settle(self, tree: TokenTree) -> None:
        """Forget nodes that the tree dropped, and paths that others contain."""
        if self._commits[tree] == tree.commits:
            return
        self._commits[tree], live = tree.commits, set(tree.tail)
        for path in self.of[tree]:
            length = len(path.nodes)
            while length and not (
                path.nodes[length - 1] in live or tree.in_trunk(path.nodes[length - 1])
            ):
                length -= 1
            self._cut(path, length)
        kept: list[Path] = []
        for path in sorted(self.of[tree], key=lambda path: -len(path.nodes)):
            if not path.nodes or any(other.holds(path.nodes[-1]) for other in kept):
                self._forget(path)
            else:
                kept.append(path)
        self.of[tree] = kept

    def missing(self, tree: TokenTree, node: NodeId) -> Iterator[NodeId]:
        """A node and its ancestors that no sequence holds, from the node up."""
        while node >= 0 and not any(path.holds(node) for path in self.of[tree]):
            yield node
            node = tree.parents[node]

    def place(self, tree: TokenTree, leaf: NodeId, placed: list[Path]) -> tuple[Path, list[NodeId]]:
        """Find or make the path that ends where the text up to a leaf goes on.

        Args:
            tree: the request's tree
            leaf: a node that no sequence holds
            placed: what was placed for the same call, and is no other leaf's; fewer paths than
                there are sequences

        Returns:
            the path, and the nodes that it lacks, the leaf first
        """
        lacking, self._clock = list(self.missing(tree, leaf)), self._clock + 1
        above = tree.parents[lacking[-1]]
        length = tree.depths[above] + 1 if above >= 0 else 0
        sources = [path for path in self.of[tree] if above >= 0 and path.holds(above)]
        ends = [p for p in sources if len(p.nodes) == length and p not in placed]
        path = ends[0] if ends else self._branch(tree, sources[:1], length)
        path.used = self._clock
        return path, lacking

    def _branch(self, tree: TokenTree, source: list[Path], length: int) -> Path:
        """A new path that shares the first `length` nodes of another, if there is one."""
        if not self._free:
            # It is none of the same call, which were placed later and are fewer.
            oldest = min(chain(*self.of.values()), key=lambda path: path.used)
            if oldest in source:
                self._cut(oldest, length)
                return oldest
            self.of[oldest.tree].remove(oldest)
            self._forget(oldest)
        new = Path(tree, self._free.pop(), [])
        for path in source:
            self.context.share(path.sequence, new.sequence, length)
            new.nodes = path.nodes[:length]
        self.of[tree].append(new)
        return new

    def _cut(self, path: Path, length: int) -> None:
        if length < len(path.nodes):
            self.context.cut(path.sequence, length)
            del path.nodes[length:]

    def _forget(self, path: Path) -> None:
        self._cut(path, 0)
        self._free.append(path.sequence)
