"""Passes that a model has made for a request before they are asked for (Foreseen)."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from decoders.engine.answers import Further
from decoders.reading import Reading, Readings
from decoders.shapes import NodeId
from decoders.tree import TokenTree


class Listener(Protocol):
    """Hears which passes are taken, for the request's ledger and its cache."""

    def taken(self) -> None:
        """Hear of each pass as it is taken."""

    def fed(self, nodes: Sequence[NodeId], seen: Sequence[int]) -> None:
        """Hear once, at the end, of all passes that were taken.

        Args:
            nodes: those that they have fed and that are live, each after the one before
            seen: for each of the passes, how many rows its last token saw
        """

    def forget(self, place: int) -> None:
        """Hear that the cache rows from a place of the text on hold tokens of passes not taken."""


class Foreseen:
    """The passes of one model for one request, in the order in which they were made.

    A pass is taken if the request comes to the tokens that it fed. If it comes to others, that pass
    and those after it are forgotten.

    Args:
        tree: the request's tree
        further: the passes
        readings: those of all their rows
        held: how many of the likeliest tokens each reading has at most
        listener: hears what happens to them
    """

    def __init__(
        self, tree: TokenTree, further: Further, readings: Readings, held: int, listener: Listener
    ):
        self._passes, self._nodes = deque(further.passes), [further.node]
        self._tree, self._readings, self._held = tree, readings, held
        self._listener, self._seen = listener, list[int]()

    def take(self, nodes: Sequence[NodeId]) -> list[Reading] | None:
        """The readings at these nodes, if the next pass has fed them and all that they follow.

        Args:
            nodes: the nodes whose readings the request waits for, each after the one before
        """
        if not self._passes:
            return None
        after, place, fed, rows = self._passes[0]
        tokens, parents = self._tree.tokens, self._tree.parents
        path, node = list[NodeId](), nodes[-1]
        for token in reversed(fed):
            if node < 0 or tokens[node] != token:
                break
            path.append(node)
            node = parents[node]
        path.reverse()
        count = rows.stop - rows.start  # of its last tokens, those with logits
        if (
            len(path) < len(fed)
            or node != self._nodes[after]
            or path[-count:] != list(nodes)
            or not self._readings.sound(rows)  # the loop comes to it, and says so
        ):
            self.close()
            return None
        self._passes.popleft()
        self._nodes += path
        self._seen.append(place + len(fed))
        self._listener.taken()
        return self._readings.of(rows, self._held)

    def close(self) -> None:
        """Tell what was taken, and forget the passes that are left.

        Each pass writes over the rows of refused tokens, and those that are left may have written
        over rows of the text.
        """
        if self._seen:
            tree, last = self._tree, self._nodes[-1]
            while not tree.lives(last):
                last = tree.parents[last]
            self._listener.fed(tree.lineage(last, tree.depths[self._nodes[1]]), self._seen)
            self._seen = []
        if self._passes:
            self._listener.forget(min(made.place for made in self._passes))
            self._passes.clear()
