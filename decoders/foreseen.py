"""Passes that a model has made for a request before they are asked for (Foreseen)."""

from collections.abc import Sequence
from typing import Protocol

from decoders.engine.answers import Further, Made
from decoders.reading import Reading, Readings
from decoders.shapes import NodeId, TokenId
from decoders.tree import TokenTree


class Listener(Protocol):
    """Hears which passes are taken, for the request's ledger and its cache."""

    def taken(self, count: int) -> None:
        """Hear of passes as they are taken."""

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
        self._passes, self._next, self._nodes = further.passes, 0, [further.node]
        self._tree, self._readings, self._held = tree, readings, held
        self._listener = listener

    @property
    def tokens(self) -> list[TokenId]:
        """Those that the next pass has fed; none if there is no such pass."""
        passes, place = self._passes, self._next
        return passes[place].tokens if place < len(passes) else []

    def said(self, count: int = 1) -> list[TokenId]:
        """The likeliest token after each row of the next passes; none if logits are not numbers.

        Args:
            count: the number of passes
        """
        parts = [made.rows for made in self._following(count)]
        if not all(map(self._readings.sound, parts)):
            return []
        bests = self._readings.bests
        return [token for rows in parts for token in bests[rows]]

    def readings(self, rows: slice) -> list[Reading]:
        """The readings of rows of a pass."""
        return self._readings.of(rows, self._held)

    def take(self, nodes: Sequence[NodeId]) -> list[Reading] | None:
        """The readings at these nodes, if the next pass has fed them and all that they follow.

        Args:
            nodes: the nodes whose readings the request waits for, each after the one before
        """
        if not self.tokens:
            return None
        rows, last = self._passes[self._next].rows, nodes[-1]
        # Of its last tokens so many have logits.
        asked = self._tree.lineage(last, self._tree.depths[last] + 1 - (rows.stop - rows.start))
        if asked != list(nodes) or not self.follow(last):
            self.close()
            return None
        return self.readings(rows)

    def follow(self, node: NodeId, count: int = 1) -> slice | None:
        """Take the next `count` passes, if they have fed the text that ends with this node.

        Args:
            node: the last node that they may have fed
            count: passes of which each feeds the tokens after those of the one before

        Returns:
            the places of their rows among all readings; None if they have fed another text
        """
        made = self._following(count)
        tokens, parents = self._tree.tokens, self._tree.parents
        path = list[NodeId]()
        for each in reversed(made):
            for token in reversed(each.tokens):
                if node < 0 or tokens[node] != token:
                    return None
                path.append(node)
                node = parents[node]
        rows = slice(made[0].rows.start, made[-1].rows.stop)
        # The loop comes to rows that are not sound, and says so.
        if node != self._nodes[made[0].after] or not self._readings.sound(rows):
            return None
        self._nodes += reversed(path)
        self._next += count
        self._listener.taken(count)
        return rows

    def _following(self, count: int) -> Sequence[Made]:
        return self._passes[self._next : self._next + count]

    def close(self) -> None:
        """Tell what was taken, and forget the passes that are left.

        Each pass writes over the rows of refused tokens, and those that are left may have written
        over rows of the text.
        """
        taken, left = self._passes[: self._next], self._passes[self._next :]
        self._passes, self._next = [], 0
        if taken:
            tree, last = self._tree, self._nodes[-1]
            while not tree.lives(last):
                last = tree.parents[last]
            seen = [made.place + len(made.tokens) for made in taken]
            self._listener.fed(tree.lineage(last, tree.depths[self._nodes[1]]), seen)
        if left:
            self._listener.forget(min(made.place for made in left))
