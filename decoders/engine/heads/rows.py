"""The cache rows of a head (HeadRows), and what it knows about a request (Known)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from decoders.engine.answers import Features
from decoders.engine.memory.arenas import Caches
from decoders.engine.memory.rows import CacheRows
from decoders.shapes import NodeId
from decoders.tree import TokenTree


class HeadRows(CacheRows):
    """Rows of a head: that of a node is made of its token and of the state at the node before it.

    So the first node has no row. What a head has made of its own states is dropped when a round
    ends, also for tokens that were kept: their rows are made again of the target's states.

    Args:
        base: the first arena row
        capacity: the number of arena rows

    Attributes:
        true: the nodes whose rows are made of the target's states
    """

    def __init__(self, base: int, capacity: int):
        super().__init__(base, capacity)
        self.first = 1
        self.true: set[NodeId] = set()

    def sync(self, tree: TokenTree) -> None:
        """Drop every row after the first that is not of the trunk or not made of a true state."""
        if (stamp := self.stamp(tree)) == self._stamp:
            return
        self._stamp = stamp
        while self.settled < len(self.nodes) and self._settles(self.nodes[self.settled], tree):
            self.settled += 1
        while len(self.nodes) > self.settled:
            self.drop_last()
        self.true = set()  # of later rows; of earlier ones `settled` says it
        self.trunk = min(self.trunk, self.settled)
        self._lengthen_trunk(tree)

    def forget(self, nodes: Iterable[NodeId]) -> None:
        """Drop the rows of these nodes, whose logits are wanted again, and all after the first."""
        rows = [self.row[node] for node in nodes if node in self.row]
        while rows and len(self.nodes) > min(rows):
            self.drop_last()
        self.settled = min(self.settled, len(self.nodes))
        self.trunk = min(self.trunk, len(self.nodes))

    def _settles(self, node: NodeId, tree: TokenTree) -> bool:
        return node in self.true and tree.in_trunk(node)


@dataclass(eq=False)
class Known:
    """What a head knows about a request.

    Attributes:
        caches: its cache rows, in one arena
        true: states made of the target's, (W,) at each node that the target has seen and that may
            still be followed by a token without a row
        own: the head's own states, (W,) at each node that has a row made in this round
    """

    caches: Caches
    true: dict[NodeId, torch.Tensor] = field(default_factory=dict)
    own: dict[NodeId, torch.Tensor] = field(default_factory=dict)
    _commits: int = 0

    @property
    def rows(self) -> HeadRows:
        (rows,) = self.caches
        assert isinstance(rows, HeadRows)
        return rows

    def learn(self, features: Features, states: torch.Tensor) -> None:
        """Note the states (nodes, W) that were made of the target's hidden states."""
        self.true.update(zip(features.nodes, states, strict=True))

    def settle(self, tree: TokenTree) -> None:
        """Forget what belongs to refused tokens, and all of the head's own states."""
        if self._commits == tree.commits:
            return
        self._commits = tree.commits
        self.rows.sync(tree)
        self.own.clear()
        # The last token with a row is followed by tokens without one, and may itself be asked about
        # again.
        begin = max(0, self.rows.settled + self.rows.first - 2)
        live = {*tree.trunk[begin:], *tree.tail}
        self.true = {node: state for node, state in self.true.items() if node in live}

    def before(self, tree: TokenTree, node: NodeId) -> torch.Tensor | None:
        """The state that a node's row is made of, (W,); None if it is not known yet."""
        parent = tree.parents[node]
        state = self.true.get(parent)
        return self.own.get(parent) if state is None else state

    def missing(self, tree: TokenTree, wanted: Iterable[NodeId]) -> list[NodeId]:
        """The wanted nodes and their ancestors that have no row, parents first."""
        missing: set[NodeId] = set()
        for node in wanted:
            while tree.parents[node] >= 0 and node not in self.rows.row and node not in missing:
                missing.add(node)
                node = tree.parents[node]
        return sorted(missing)
