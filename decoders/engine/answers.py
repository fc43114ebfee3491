"""What passes give (Output, Answer)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from decoders.scan import Found
from decoders.shapes import Logits, NodeId, TokenId


@dataclass(frozen=True, slots=True)
class Output:
    """The result of one pass.

    Attributes:
        logits: logits of the tokens that want them, (n, V)
        features: for each requested layer, the hidden states of all tokens of the pass, (tokens, H)
    """

    logits: Logits
    features: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True, slots=True)
class Features:
    """Hidden states of the nodes that one pass fed.

    Attributes:
        nodes: the nodes in the order in which they were fed, which is that of their ids
        states: for each requested layer, (nodes, H)
    """

    nodes: Sequence[NodeId]
    states: tuple[torch.Tensor, ...]

    def of(self, layers: Sequence[int], asked: Sequence[int]) -> "Features":
        """Select the hidden states of some layers.

        Args:
            layers: the layers that `states` belong to
            asked: the layers to select, in the order of the result
        """
        return Features(self.nodes, tuple(self.states[layers.index(layer)] for layer in asked))

    def first(self, count: int) -> "Features":
        """Those of the first `count` nodes."""
        return Features(self.nodes[:count], tuple(state[:count] for state in self.states))

    def at(self, node: NodeId) -> tuple[torch.Tensor, ...]:
        """Look up the hidden states of one node, (H,) for each layer.

        Raises:
            ValueError: if the pass did not feed this node
        """
        place = self.nodes.index(node)
        return tuple(states[place] for states in self.states)


@dataclass(frozen=True, slots=True)
class Waste:
    """The padding that one pass added for one request (see `decoders.engine.passes.packed`).

    Attributes:
        tokens: tokens that were computed only to fill up the request's input
        rows: rows that were added only to align its cache
        longest_growth: the most rows that any request of the batch kept since the last alignment
            (tau_max of the source); 0 if nothing was aligned

    Source:
        Ni et al. 2024, EMS-SD (arXiv 2405.07542), equation 8
    """

    tokens: int
    rows: int
    longest_growth: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one pass for one request, and its cost.

    Attributes:
        rows: the raw logits of the whole call, (n, V), in memory that no later pass overwrites,
            because readings look at them on demand
        part: the rows at the request's nodes, of a chain before each of its tokens; None if only a
            part of the prompt was fed, so that the request must ask again
        cache_bytes: bytes read from the request's cache, in the first pass
        weight_bytes: bytes of weights read in all passes, which all requests of a pass share
        waste: the padding; None in batches without padding
        passes: forward passes that the answer took
        features: hidden states of every node that was fed, parts of a prompt included; None unless
            layers were requested
        tokens: the tokens of a chain that the passes have drawn; all but the last are fed
        found: what was already read of all rows
    """

    rows: Logits
    part: slice | None
    cache_bytes: int
    weight_bytes: int
    waste: Waste | None = None
    passes: int = 1
    features: Features | None = None
    tokens: Sequence[TokenId] = ()
    found: Found | None = None

    @property
    def logits(self) -> Logits | None:
        """The raw logits at the request's nodes, (nodes, V); None if `part` is."""
        return None if self.part is None else self.rows[self.part]


def of_one_pass(answers: Sequence[Answer]) -> list[Answer]:
    """Join answers with separate rows, so that all of them share one tensor of rows."""
    parts = [answer.logits for answer in answers if answer.logits is not None]
    rows, together, start = torch.cat(parts) if parts else answers[0].rows, [], 0
    for answer in answers:
        part = (
            None
            if answer.part is None
            else slice(start, start := start + len(answer.rows[answer.part]))
        )
        together.append(replace(answer, rows=rows, part=part))
    return together
