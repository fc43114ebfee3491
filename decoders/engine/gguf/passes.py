"""The passes of one GGUF model in one run (GgufPasses)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from decoders.engine.answers import Answer
from decoders.engine.gguf.paths import Batch, Path, Paths
from decoders.engine.protocols import Layers, Passes, Wants
from decoders.shapes import NodeId
from decoders.tree import TokenTree

Leaf = tuple[TokenTree, NodeId]
# The row of each node in the logits of a pass.
Rows = dict[tuple[TokenTree, NodeId], int]


class GgufPasses(Passes):
    """The passes of one GGUF model in one run; all requests share a context of llama.cpp.

    Args:
        model: the model (`decoders.engine.gguf.model.GgufModel`)
        rows: cache rows that the requests are expected to need together
        most_rows: the most cache rows that they may have, or None for no limit
    """

    def __init__(self, model: Any, rows: int = 0, most_rows: int | None = None):
        self.model, self._rows, self._most = model, rows, most_rows
        self._admitted: dict[TokenTree, int] = {}
        # The context is made for the first pass and goes with the last request.
        self._paths: Paths | None = None

    def admit(self, tree: TokenTree, rows: int) -> bool:
        if self._most is not None and sum(self._admitted.values()) + rows > self._most:
            return False
        self._admitted[tree] = rows
        if self._paths is not None:
            self._paths.add(tree)
        return True

    def release(self, tree: TokenTree) -> None:
        if self._admitted.pop(tree, None) is None or self._paths is None:
            return
        self._paths.remove(tree)
        if not self._admitted:
            self.model.take_back(self._paths.context, self._most)
            self._paths = None

    def rows_of(self, tree: TokenTree) -> int:
        return 0 if self._paths is None else self._paths.rows(tree)

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        asked, leaves, paths = self._prepare(wants, chunk)
        found: Rows = {}
        # A tree with more leaves than there are sequences is fed in parts.
        most = paths.context.sequences
        groups = [leaves[i : i + most] for i in range(0, len(leaves), most)]
        parts = [self._feed(paths, group, asked, found) for group in groups]
        order = [found[tree, node] for tree, nodes in asked.items() for node in nodes]
        logits = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if order != list(range(len(logits))):
            logits = logits[order]
        rows, answers, start = torch.from_numpy(self.model.over_vocabulary(logits)), [], 0
        for tree, _ in wants:
            part = slice(start, start := start + len(asked[tree]))
            answers.append(
                Answer(
                    rows,
                    part if asked[tree] else None,
                    paths.rows(tree) * self.model.row_bytes,
                    self.model.weight_bytes * len(groups),
                    passes=len(groups),
                )
            )
        return answers

    def _prepare(
        self, wants: Wants, chunk: int | None
    ) -> tuple[dict[TokenTree, Sequence[NodeId]], list[Leaf], Paths]:
        """What a pass feeds.

        Returns:
            for each request the nodes whose logits it gets, none after a part of a prompt; the
            leaves of what is fed; and the paths, with room for it
        """
        paths = self._paths or self._begin(self._rows)
        while True:
            asked: dict[TokenTree, Sequence[NodeId]] = {}
            leaves: list[Leaf] = []
            for tree in paths.of:
                paths.settle(tree)
            rows = sum(map(paths.rows, paths.of))
            for tree, nodes in wants:
                missing = lacking(paths, tree, nodes)
                asked[tree] = nodes
                if chunk is not None and sum(n < tree.prompt_length for n in missing) > chunk:
                    asked[tree], missing = (), missing[:chunk]
                inner = {tree.parents[node] for node in missing}
                leaves += ((tree, node) for node in missing if node not in inner)
                rows += len(missing)
            if rows <= paths.context.rows:
                return asked, leaves, paths
            if self._most is not None:
                raise RuntimeError("a request needs more cache rows than its decoder announced")
            # A context cannot grow: another one reads the texts again. Until it is there, there is
            # none: memory may be short, and this one is freed.
            self._paths = None
            paths.context.close()
            paths = self._begin(2 * rows)

    def _begin(self, rows: int) -> Paths:
        self._paths = Paths(self.model.lend(rows, self._most))
        for tree in self._admitted:
            self._paths.add(tree)
        return self._paths

    def _feed(
        self,
        paths: Paths,
        leaves: Sequence[Leaf],
        asked: dict[TokenTree, Sequence[NodeId]],
        found: Rows,
    ) -> np.ndarray:
        """Feed the paths to some leaves in one call; add the rows of what was asked to `found`."""
        placed: list[Path] = []
        sequences: dict[tuple[TokenTree, NodeId], list[int]] = {}
        grown: list[tuple[Path, list[NodeId]]] = []
        for tree, leaf in leaves:
            path, missing = paths.place(tree, leaf, placed)
            placed.append(path)
            grown.append((path, missing))
            for node in reversed(missing):
                sequences.setdefault((tree, node), []).append(path.sequence)
        batch = Batch([], [], [], [])
        wanted = {tree: set(nodes) for tree, nodes in asked.items()}
        for (tree, node), of in sequences.items():
            token = tree.tokens[node]
            batch.tokens.append(token if token < self.model.own else 0)
            batch.positions.append(tree.depths[node])
            batch.sequences.append(of)
            batch.wanted.append(node in wanted[tree] and (tree, node) not in found)
            if batch.wanted[-1]:
                found[tree, node] = len(found)
        logits = paths.context.decode(batch)
        for path, missing in grown:
            path.nodes += missing[::-1]
        return logits


def lacking(paths: Paths, tree: TokenTree, nodes: Sequence[NodeId]) -> list[NodeId]:
    """The nodes to feed so that all wanted ones are fed, parents first."""
    found: set[NodeId] = set()
    for node in nodes:
        new = []
        for each in paths.missing(tree, node):
            if each in found:
                break
            new.append(each)
        if not new and node not in found:
            raise RuntimeError("a node was asked about a second time after its logits were dropped")
        found.update(new)
    return sorted(found)
