"""The passes of a head in one run (HeadPasses), and its cache rows (HeadRows)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from decoders.engine.memory.arenas import Caches
from decoders.engine.memory.feeds import Feed
from decoders.engine.memory.rows import CacheRows
from decoders.engine.protocols import Answer, Chain, Features, Layers, Passes, Wants
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


@dataclass
class Waiting:
    """A request in a run: the nodes that have no row yet, and those that want logits.

    Attributes:
        tree: its tree
        known: what the head knows about it
        missing: nodes without a row, parents first
        wanted: nodes that want logits
        whole: whether all its nodes are fed, not only a part of the prompt
        logits: those found so far, (R,) by node
        passes: the passes that it took part in
        read: the bytes of weights that they read
    """

    tree: TokenTree
    known: Known
    missing: list[NodeId]
    wanted: list[NodeId]
    whole: bool = True
    logits: dict[NodeId, torch.Tensor] = field(default_factory=dict)
    passes: int = 0
    read: int = 0


class HeadPasses(Passes):
    """The passes of a head in one run.

    A row is made of a token and the state before it: the target's where the target has been, else
    the head's own. A node below one whose state is not known yet waits for the next pass.

    Args:
        model: the head (`decoders.engine.heads.head.Head`)
        rows: cache rows that the requests are expected to need together
        most_rows: the most cache rows that they may have, or None for no limit
    """

    def __init__(self, model: Any, rows: int = 0, most_rows: int | None = None):
        self.model, self.reads = model, model.reads
        self.arenas = model.arenas(rows, most_rows)
        self._known: dict[TokenTree, Known] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        caches = self.arenas.take(rows, tree.prompt_length)
        if caches is not None:
            self._known[tree] = Known(caches)
        return caches is not None

    def release(self, tree: TokenTree) -> None:
        if (known := self._known.pop(tree, None)) is not None:
            self.arenas.give_back(known.caches)

    def rows_of(self, tree: TokenTree) -> int:
        return len(self._known[tree].rows)

    def learn(self, tree: TokenTree, features: Features) -> None:
        self._known[tree].learn(features, self.model.entering(features.states))

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        return self.read(wants, 0, chunk=chunk)

    @torch.inference_mode()
    def read(
        self, wants: Wants, sought: int, chains: Sequence[Chain] = (), chunk: int | None = None
    ) -> list[Answer]:
        waiting = [self._waiting(tree, nodes, chunk) for tree, nodes in wants]
        while any(each.missing for each in waiting):
            self._pass([each for each in waiting if each.missing])
        rows = [each.logits[node] for each in waiting if each.whole for node in each.wanted]
        own = torch.stack(rows) if rows else torch.empty(0, self.model.proposes)
        tops = self.model.look_through(own, sought) if sought and rows else None
        together = self.model.over_vocabulary(own)
        answers, start = [], 0
        for each in waiting:
            part = slice(start, start := start + len(each.wanted)) if each.whole else None
            answers.append(
                Answer(
                    together,
                    part,
                    self.arenas.bytes(each.known.caches)
                    + len(each.known.true) * self.model.state_bytes,
                    each.read,
                    passes=each.passes,
                    tops=tops,
                )
            )
        return answers

    def _waiting(self, tree: TokenTree, nodes: Sequence[NodeId], chunk: int | None) -> Waiting:
        known = self._known[tree]
        known.settle(tree)
        known.rows.forget(nodes)
        # Before the first token there is no state, and after a prompt of one token none is known at
        # first. Any proposal is valid there.
        unknown = not known.true and not known.rows
        blank = [node for node in nodes if unknown or tree.parents[node] < 0]
        each = Waiting(
            tree,
            known,
            [] if unknown else known.missing(tree, nodes),
            list(nodes),
            logits={node: self.model.no_logits() for node in blank},
        )
        if chunk is not None and sum(n < tree.prompt_length for n in each.missing) > chunk:
            each.missing, each.whole = each.missing[:chunk], False
        return each

    def _pass(self, waiting: Sequence[Waiting]) -> None:
        """Feed every node whose state is known."""
        feeds: list[Feed] = []
        states: list[torch.Tensor] = []
        for each in waiting:
            before = [(node, each.known.before(each.tree, node)) for node in each.missing]
            ready = [node for node, state in before if state is not None]
            if not ready:
                raise RuntimeError("a head was asked about a text that the target has not read")
            states += (state for _, state in before if state is not None)
            wanted = [node for node in ready if node in each.wanted]
            feeds.append(Feed(each.tree, each.known.rows, ready, wanted))
            parents, true = each.tree.parents, each.known.true
            each.known.rows.true.update(node for node in ready if parents[node] in true)
        caches = {each.tree: each.known.caches for each in waiting}
        inputs = self.arenas.pack(feeds, caches, self.model.by_request)
        logits, own = self.model(inputs, torch.stack(states))
        fed = answered = 0
        for each, feed in zip(waiting, feeds, strict=True):
            count = len(feed.nodes)
            each.known.own.update(zip(feed.nodes, own[fed : fed + count], strict=True))
            rows = logits[answered : answered + len(feed.wanted)]
            each.logits.update(zip(feed.wanted, rows, strict=True))
            fed, answered = fed + count, answered + len(feed.wanted)
            done = set(feed.nodes)
            each.missing = [node for node in each.missing if node not in done]
            each.passes += 1
            each.read += self.model.bytes_read(inputs.input_ids.numel())
