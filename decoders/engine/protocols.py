"""The loop's view of a model (Model) and of its passes (Passes)."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from decoders.engine.answers import Answer, Features, Further, Outlook
from decoders.shapes import NodeId
from decoders.tree import TokenTree

# For each request, the nodes whose logits it wants.
Wants = Sequence[tuple[TokenTree, Sequence[NodeId]]]
# Layers whose hidden states are requested, numbered as in `hidden_states` of transformers: 0 is the
# embedding.
Layers = tuple[int, ...]
# Tells how a request goes on, for a number of tokens at most; None if it is not known.
Foresee = Callable[[int], Outlook | None]


class Begun(NamedTuple):
    """A round in which nothing is drafted yet.

    Attributes:
        tree: the request's tree
        tip: the last token of the text; the target has not read it yet
        length: how many tokens the draft model will draw, each after the one before
        foresee: tells how the request goes on, for a number of rounds at most
    """

    tree: TokenTree
    tip: NodeId
    length: int
    foresee: Foresee


class Passes(Protocol):
    """The passes of one model in one run, and its memory of each request between them.

    Attributes:
        model: the model, for messages
        reads: the layers of the target whose hidden states `learn` gets after each of the target's
            passes; empty for models that read text alone
    """

    model: Any
    reads: Layers = ()

    @property
    def ahead(self) -> int:
        """The most passes that it makes before it is asked; 0 if it never does."""
        return 0

    def expect(self, tree: TokenTree, foresee: Foresee) -> None:
        """Hear how a request will probably go on after the next pass, which may make use of it.

        Args:
            tree: the request's tree
            foresee: tells it; called in that pass or never
        """
        return None

    def rounds(self, draft: "Passes", begun: Begun) -> tuple[Further, Further] | None:
        """Make rounds of a request that drafts and verifies chains.

        Args:
            draft: the passes of the draft model
            begun: the first of the rounds

        Returns:
            this model's passes, perhaps none, and those of the draft model; None if none were made
        """
        return None

    def fed(self, tree: TokenTree, nodes: Sequence[NodeId]) -> None:
        """Give nodes the cache rows of guessed tokens: the request has come to the same ones.

        Args:
            tree: the request's tree
            nodes: the nodes, each after the one before
        """
        return None

    def forget(self, tree: TokenTree, place: int) -> None:
        """Give the cache rows from a place of the text on to other tokens.

        Args:
            tree: the request's tree
            place: the place
        """
        return None

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
