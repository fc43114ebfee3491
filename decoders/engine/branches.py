"""Passes of a plain model over token trees: the paths of each request that the model has seen (PlainEngine)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from decoders.engine.answer import Answer, Wants, of_one_pass
from decoders.engine.plain import Path, PlainModel, cache_bytes
from decoders.shapes import NodeId
from decoders.tree import TokenTree

AGAIN = 16  # most tokens of the trunk that are read again with each draft, rather than in a pass of their own


class Branches:
    """The paths of one request's tree that a plain model has seen, each with a cache of its own.

    A cache that cannot be rewound is read on in place only along the trunk; below the trunk a copy is. So there is always one that
    ends in the trunk, and a few accepted tokens are read again from there, together with the next draft.
    """

    def __init__(self, model: PlainModel, tree: TokenTree):
        self.model, self.tree = model, tree
        self.paths = [Path()]
        self.passes = 0

    @property
    def rows(self) -> int:
        return sum(len(path.nodes) for path in self.paths)

    @property
    def bytes(self) -> int:
        return cache_bytes(self.paths)

    def settle(self) -> None:
        """Forget nodes that the tree dropped, and paths that others contain."""
        tree, tail = self.tree, set(self.tree.tail)
        kept: dict[NodeId, Path] = {}
        for path in self.paths:
            length = len(path.nodes)
            while length and not (path.nodes[length - 1] in tail or tree.in_trunk(path.nodes[length - 1])):
                length -= 1
            if length < len(path.nodes):
                if not self.model.rewindable:
                    continue
                path.rewind(length)
            kept[path.tip] = path
        below = [path for tip, path in kept.items() if tip in tail]
        above = [path for tip, path in kept.items() if tip not in tail]
        if below and self.model.rewindable:
            above = []
        self.paths = [*sorted(above, key=lambda path: len(path.nodes))[-1:], *below]

    def read_prompt(self, count: int) -> bool:
        """Let the model read `count` more tokens of the prompt, if more than these are missing; returns whether it did."""
        (path,) = self.paths[:1]
        missing = self.tree.trunk[len(path.nodes) : self.tree.prompt_length]
        if len(missing) > count:
            self._extend(path, missing[:count], 1)
        return len(missing) > count

    def logits(self, wanted: Sequence[NodeId]) -> Tensor:
        """The logits (wanted, V), by as few passes as the branches allow."""
        children = self._unseen(wanted)
        rows: dict[NodeId, Tensor] = {}
        for start in [node for node in children if node < 0 or self._at(node) is not None]:
            path = self._at(start) or self._anew()
            if len(path.nodes) > self._depth(start):
                path = self._copy(path)
                path.rewind(self._depth(start))
            self._grow(path, children, set(wanted), rows)
        return torch.stack([rows[node] for node in wanted])

    def _anew(self) -> Path:
        self.paths.append(Path())
        return self.paths[-1]

    def _depth(self, node: NodeId) -> int:
        """How many nodes a path that ends there has."""
        return self.tree.depths[node] + 1 if node >= 0 else 0

    def _at(self, node: NodeId) -> Path | None:
        """A path that ends at a node, or goes through it if it can be rewound."""
        depth = self._depth(node)
        through = [p for p in self.paths if p.tip == node]
        if not through and self.model.rewindable:
            through = [p for p in self.paths if node < 0 or (len(p.nodes) >= depth and p.nodes[depth - 1] == node)]
        return through[0] if through else None

    def _unseen(self, wanted: Sequence[NodeId]) -> dict[NodeId, list[NodeId]]:
        """The children of each node that are to be read, so that all wanted ones are."""
        children: dict[NodeId, list[NodeId]] = defaultdict(list)
        found: set[NodeId] = set()
        for node in wanted:
            while node >= 0 and node not in found:
                found.add(node)
                parent = self.tree.parents[node]
                children[parent].append(node)
                if self._at(parent) is not None:
                    break
                node = parent
        return children

    def _grow(self, path: Path, children: dict[NodeId, list[NodeId]], wanted: set[NodeId], rows: dict) -> None:
        """Read all that is to be read below the end of a path: in place along the last child, in copies along the others."""
        anchored = not self.model.rewindable and self._in_trunk(path.tip)
        if anchored and self._is_short(path.tip, children):
            path, anchored = self._copy(path), False
        waiting = [(path, children.get(path.tip, []))]
        while waiting:
            path, heads = waiting.pop()
            # What cannot be rewound stays where it is when the trunk ends.
            stays = anchored and self._in_trunk(path.tip)
            for i, head in enumerate(heads):
                copies = i + 1 < len(heads) or (stays and not self._in_trunk(head))
                mine = self._copy(path) if copies else path
                run = [head]
                while len(children.get(run[-1], ())) == 1 and not (anchored and run[-1] == self.tree.trunk[-1]):
                    run += children[run[-1]]
                first = next((k for k, node in enumerate(run) if node in wanted), len(run) - 1)
                logits = self._extend(mine, run, len(run) - first)
                rows.update((n, row) for n, row in zip(run[first:], logits, strict=True) if n in wanted)
                waiting.append((mine, children.get(run[-1], [])))

    def _in_trunk(self, node: NodeId) -> bool:
        return node < 0 or self.tree.in_trunk(node)

    def _is_short(self, tip: NodeId, children: dict[NodeId, list[NodeId]]) -> bool:
        """Whether a draft is to be read, and little of the trunk before it."""
        end = self.tree.trunk[-1]
        return 0 < self._depth(end) - self._depth(tip) <= AGAIN and end in children

    def _copy(self, path: Path) -> Path:
        self.paths.append(path.copy())
        return self.paths[-1]

    def _extend(self, path: Path, nodes: list[NodeId], last: int) -> Tensor:
        logits, passes = self.model.extend(path, nodes, [self.tree.tokens[n] for n in nodes], last)
        self.passes += passes
        return logits


class PlainEngine:
    """Passes of one plain model for the requests of one run, one request at a time; the interface of `Engine`."""

    def __init__(self, model: PlainModel):
        self.model = model
        self._branches: dict[TokenTree, Branches] = {}

    def admit(self, tree: TokenTree, rows: int) -> bool:
        self._branches[tree] = Branches(self.model, tree)
        return True

    def release(self, tree: TokenTree) -> None:
        self._branches.pop(tree, None)

    def rows_of(self, tree: TokenTree) -> int:
        """How many tokens the caches of a request hold now, all its branches together."""
        return self._branches[tree].rows

    def run(self, wants: Wants, chunk: int | None = None) -> list[Answer]:
        """The logits at the nodes that each request wants. Of a request with more than `chunk` prompt tokens to read, only the first
        `chunk` are read."""
        return of_one_pass(list(self._answers(wants, chunk)))

    def _answers(self, wants: Wants, chunk: int | None) -> Iterator[Answer]:
        for tree, nodes in wants:
            branches = self._branches[tree]
            branches.settle()
            before, part = branches.passes, None
            rows = torch.empty(0, self.model.vocabulary)
            if chunk is None or not branches.read_prompt(chunk):
                rows, part = branches.logits(nodes), slice(0, len(nodes))
                rows = rows if rows.dtype == torch.float64 else rows.float()
            passes = branches.passes - before
            # The loop shares the weights of an answer among the requests of its pass, and here each has passes of its own.
            weights = passes * self.model.weight_bytes * len(wants)
            yield Answer(rows, part, branches.bytes, weights, passes=passes)
