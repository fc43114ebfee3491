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
        self._made, self._next, self._nodes = [*further.made], 0, [further.node]
        self._tree, self._readings, self._held = tree, readings, held
        self._listener = listener

    @property
    def over(self) -> bool:
        """Whether no pass is left."""
        return self._next == len(self._made)

    def fed(self) -> list[TokenId]:
        """The tokens that the next pass fed, each after the one before; none if no pass is left."""
        return made.tokens if (made := self._following(1)) else []

    def said(self, count: int = 1) -> list[TokenId]:
        """The likeliest token after each row of the next passes.

        There is none if fewer passes follow one another, or if logits are not numbers.

        Args:
            count: the number of passes
        """
        made = self._following(count)
        return self._readings.bests(made.rows) if made and self._sound(made) else []

    def readings(self, rows: slice) -> list[Reading]:
        """The readings of rows of a pass."""
        return self._readings.of(rows, self._held)

    def take(self, nodes: Sequence[NodeId]) -> list[Reading] | None:
        """The readings at these nodes, if the next pass has fed them and all that they follow.

        Args:
            nodes: the nodes whose readings the request waits for, each after the one before
        """
        if not (made := self._following(1)):
            return None
        tree, last, readings = self._tree, nodes[-1], self.readings(made.rows)
        # Of its last tokens so many have logits.
        asked = tree.lineage(last, tree.depths[last] + 1 - len(readings))
        if asked != list(nodes) or not self.follow(last):
            self.close()
            return None
        return readings

    def follow(self, node: NodeId, count: int = 1) -> slice | None:
        """Take the next `count` passes, if they have fed the text that ends with this node.

        Args:
            node: the last node that they may have fed
            count: the number of passes, which follow one another

        Returns:
            the places of their rows among all readings; None if they have fed another text
        """
        if not (made := self._following(count)):
            return None
        tree = self._tree
        path = tree.lineage(node, tree.depths[node] + 1 - len(made.tokens))
        if tree.parents[path[0]] != self._nodes[made.after]:
            return None
        # The loop comes to rows that are not sound, and says so.
        if [tree.tokens[n] for n in path] != made.tokens or not self._sound(made):
            return None
        self._nodes += path
        self._next += 1
        self._listener.taken(count)
        return made.rows

    def _sound(self, made: Made) -> bool:
        return self._readings.sound(made.rows)

    def _following(self, count: int) -> Made | None:
        """The next `count` passes, split from others; None if fewer follow one another."""
        if self.over or (made := self._made[self._next]).passes < count:
            return None
        if made.passes > count:
            made, rest = made.split(count, len(self._nodes) - 1)
            self._made[self._next : self._next + 1] = made, rest
        return made

    def close(self) -> None:
        """Tell what was taken, and forget the passes that are left.

        Each pass writes over the rows of refused tokens, and those that are left may have written
        over rows of the text.
        """
        taken, left = self._made[: self._next], self._made[self._next :]
        self._made, self._next = [], 0
        if taken:
            tree, last = self._tree, self._nodes[-1]
            while not tree.lives(last):
                last = tree.parents[last]
            seen = [each.place + each.first + i for each in taken for i in range(each.passes)]
            self._listener.fed(tree.lineage(last, tree.depths[self._nodes[1]]), seen)
        if left:
            self._listener.forget(min(each.place for each in left))
