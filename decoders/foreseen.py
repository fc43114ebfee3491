"""Passes that a model has made for a request before they are asked for (Foreseen)."""

from collections import deque
from collections.abc import Callable, Sequence

from decoders.engine.answers import Further
from decoders.reading import Reading, Readings
from decoders.shapes import NodeId
from decoders.tree import TokenTree


class Foreseen:
    """The passes of one model for one request, in the order in which they were made.

    A pass is taken if the request comes to the tokens that it fed. If it comes to others, that pass
    and those after it are forgotten.

    Args:
        further: the passes
        readings: those of all their rows
        held: how many of the likeliest tokens each reading has at most
        fed: told the nodes that a pass has fed, when it is taken
        forget: told from which place on the cache rows hold tokens of passes that are forgotten
    """

    def __init__(
        self,
        further: Further,
        readings: Readings,
        held: int,
        fed: Callable[[Sequence[NodeId]], None],
        forget: Callable[[int], None],
    ):
        self._passes, self._nodes = deque(further.passes), [further.node]
        self._readings, self._held, self._fed, self._forget = readings, held, fed, forget

    def take(self, tree: TokenTree, nodes: Sequence[NodeId]) -> list[Reading] | None:
        """The readings at these nodes, if the next pass has fed them and all that they follow.

        Args:
            tree: the request's tree
            nodes: the nodes whose readings it waits for, each after the one before
        """
        if not self._passes:
            return None
        after, _, tokens, rows = self._passes[0]
        path, node = list[NodeId](), nodes[-1]
        for token in reversed(tokens):
            if node < 0 or tree.tokens[node] != token:
                break
            path.append(node)
            node = tree.parents[node]
        path.reverse()
        count = rows.stop - rows.start  # of its last tokens, those with logits
        if (
            len(path) < len(tokens)
            or node != self._nodes[after]
            or path[-count:] != list(nodes)
            or not self._readings.sound(rows)  # the loop comes to it, and says so
        ):
            self.close()
            return None
        self._passes.popleft()
        self._nodes += path
        self._fed(path)
        return self._readings.of(rows, self._held)

    def close(self) -> None:
        """Forget the passes that are left, which may have overwritten rows of the text."""
        if self._passes:
            self._forget(min(made.place for made in self._passes))
            self._passes.clear()
