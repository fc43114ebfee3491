"""The loop's view of a model (Model) and of its passes (Passes), with what both take and answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch

from decoders.shapes import Logits, NodeId
from decoders.tree import TokenTree

# For each request, the nodes whose logits it wants.
Wants = Sequence[tuple[TokenTree, Sequence[NodeId]]]
# Layers whose hidden states are requested, numbered as in `hidden_states` of transformers: 0 is the
# embedding.
Layers = tuple[int, ...]


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
        rows: the raw logits of the whole pass, (n, V), in memory that no later pass overwrites,
            because readings look at them on demand
        part: the rows at the request's nodes; None if only a part of the prompt was fed, so that
            the request must ask again
        cache_bytes: bytes read from the request's cache
        weight_bytes: bytes of weights read, which all requests of the pass share
        waste: the padding; None in batches without padding
        passes: forward passes that the answer took
        features: hidden states of every node that was fed, parts of a prompt included; None unless
            layers were requested
    """

    rows: Logits
    part: slice | None
    cache_bytes: int
    weight_bytes: int
    waste: Waste | None = None
    passes: int = 1
    features: Features | None = None

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


class Passes(Protocol):
    """The passes of one model in one run, and its memory of each request between them.

    Attributes:
        model: the model, for messages
        reads: the layers of the target whose hidden states `learn` gets after each of the target's
            passes; empty for models that read text alone
    """

    model: Any
    reads: Layers = ()

    def admit(self, tree: TokenTree, rows: int) -> bool:
        """Reserve cache rows for a request, which gets more when it needs them.

        Args:
            tree: the request's tree
            rows: cache rows to reserve

        Returns:
            False if there is no room now
        """

    def release(self, tree: TokenTree) -> None:
        """Give back the cache rows of a request, if it has any."""

    def rows_of(self, tree: TokenTree) -> int:
        """The number of cache rows that a request uses now."""

    def run(self, wants: Wants, chunk: int | None = None, features: Layers = ()) -> list[Answer]:
        """Run one pass for all these requests.

        Ancestors that the model has not seen are fed too.

        Args:
            wants: for each request, the nodes whose logits it wants
            chunk: if a request has more prompt tokens than this to feed, only the first `chunk` are
                fed
            features: layers whose hidden states are returned for all nodes that are fed

        Returns:
            an answer for each request, in the order of `wants`
        """

    def learn(self, tree: TokenTree, features: Features) -> None:
        """Take the target's hidden states of nodes that the target has just seen.

        Args:
            tree: the request's tree
            features: the hidden states in the layers that this model `reads`
        """
        return None


@runtime_checkable
class Model(Protocol):
    """A model that decoders can ask; any object that fits may be the draft of a `ModelPair`.

    Attributes:
        name: its name in messages
        packed: whether requests share its passes
        why: if they do not, the reason, as a clause
        vocabulary: V, that of the pair
        positions: the most tokens that it can see, or None
        row_bytes: bytes of a cache row
        weight_bytes: bytes of the weights that a pass reads
        reads: see `Passes`
        engine_name: how its passes run, for people
        copied_bytes: bytes of its copies of weights
    """

    name: str
    packed: bool
    why: str
    vocabulary: int
    positions: int | None
    row_bytes: int
    weight_bytes: int
    reads: Layers

    @property
    def engine_name(self) -> str: ...

    @property
    def copied_bytes(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def engine(self, rows: int = 0, most_rows: int | None = None) -> Passes:
        """Begin the passes of one run.

        Args:
            rows: cache rows to begin with, counted in tokens of the target
            most_rows: the most cache rows, counted likewise; None for no limit
        """

    def refuse_changes(self) -> None:
        """Raise InputError if the model is no longer the one that was tested."""

    def refuse_features(self, layers: Layers) -> None:
        """Raise InputError unless its passes can return the hidden states of these layers."""
