"""The loop's view of a model (Model), of its passes (Passes), and of what they give (Answer)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from decoders.distribution import Tops, Warping
from decoders.shapes import Logits, NodeId, TokenId
from decoders.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Features:
    """Hidden states of the nodes that one pass fed.

    Attributes:
        nodes: the nodes in the order in which they were fed, which is that of their ids
        states: for each requested layer, (nodes, H)
    """

    nodes: Sequence[NodeId]
    states: tuple[torch.Tensor, ...]

    def of(self, layers: Sequence[int], chosen: Sequence[int]) -> "Features":
        """Those of some of the layers that they belong to, in the order of `chosen`."""
        return Features(self.nodes, tuple(self.states[layers.index(layer)] for layer in chosen))

    def first(self, count: int) -> "Features":
        """Those of the first `count` nodes."""
        return Features(self.nodes[:count], tuple(state[:count] for state in self.states))


@dataclass(frozen=True, slots=True)
class Waste:
    """The padding that one pass added for one request (see `decoders.engine.passes`).

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
            because readings look at them on demand; an array if a device has sent them to the host
        part: the rows at the request's nodes, of a chain before each of its tokens; None if only a
            part of the prompt was fed, so that the request must ask again
        cache_bytes: bytes read from the request's cache, in the first pass
        weight_bytes: bytes of weights read in all passes, which all requests of a pass share
        waste: the padding; None in batches without padding
        passes: forward passes that the answer took
        features: hidden states of every node that was fed, parts of a prompt included; None unless
            layers were requested
        tokens: the tokens of a chain that the passes have drawn; all but the last are fed
        tops: what was already read of all rows
    """

    rows: Logits | np.ndarray
    part: slice | None
    cache_bytes: int
    weight_bytes: int
    waste: Waste | None = None
    passes: int = 1
    features: Features | None = None
    tokens: Sequence[TokenId] = ()
    tops: Tops | None = None

    @property
    def logits(self) -> Logits | None:
        """The raw logits at the request's nodes, (nodes, V); None if `part` is."""
        return None if self.part is None else torch.as_tensor(self.rows)[self.part]


class Launch(NamedTuple):
    """What a launch, or a call of the kernels, gives.

    Attributes:
        rows: the logits, those of a chain before each token, (n, V); if chains were drawn, request
            by request in each pass; an array if they are on the host
        tops: what was read of them, if anything was
        tokens: the tokens of chains, (steps, requests); a graph has more requests than there are
        states: a head's own states at every token that was fed, request by request in each pass
    """

    rows: Logits | np.ndarray
    tops: Tops | None
    tokens: np.ndarray
    states: np.ndarray | None = None


def of_one_pass(answers: Sequence[Answer]) -> list[Answer]:
    """Join answers with separate rows, so that all of them share one tensor of rows."""
    parts = [answer.logits for answer in answers if answer.logits is not None]
    rows, together, start = torch.cat(parts) if parts else answers[0].rows, list[Answer](), 0
    for answer in answers:
        part = (
            None
            if answer.part is None
            else slice(start, start := start + len(answer.rows[answer.part]))
        )
        together.append(replace(answer, rows=rows, part=part))
    return together


def comparable(logits: Logits) -> Logits:
    """Logits in a type that readings know."""
    return logits if logits.dtype == torch.float64 else logits.float()


# For each request, the nodes whose logits it wants.
Wants = Sequence[tuple[TokenTree, Sequence[NodeId]]]
# Layers whose hidden states are requested, numbered as in `hidden_states` of transformers: 0 is the
# embedding.
Layers = tuple[int, ...]


class OpenChain(NamedTuple):
    """A chain that passes may draw by themselves, see `decoders.request.Ask`.

    Attributes:
        steps: the most tokens
        warping: what each token is drawn from
        numbers: the uniform numbers that draw, each of which stays the next one until its token is
            taken; None where nothing is left to chance
        ends: tokens that end the text
    """

    steps: int
    warping: Warping
    numbers: Callable[[int], Sequence[float]] | None
    ends: Collection[TokenId]


class Passes(Protocol):
    """The passes of one model in one run, and its memory of each request between them.

    Attributes:
        model: the model, for messages
        reads: the layers of the target whose hidden states `learn` gets after each of the target's
            passes; empty for models that read text alone
    """

    model: Any
    reads: Layers = ()

    def grow(self, tree: TokenTree, nodes: Sequence[NodeId]) -> None:
        """Give nodes the cache rows of the tokens that a chain has drawn and fed.

        Args:
            tree: the request's tree
            nodes: the nodes, each after the one before
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

    def read(
        self,
        wants: Wants,
        sought: int,
        chains: Sequence[OpenChain] = (),
        chunk: int | None = None,
        held: int = 1,
        temperatures: Collection[float] = (),
        whole: bool = False,
    ) -> list[Answer]:
        """Run one pass for all these requests, perhaps look through its logits, and draw chains.

        It draws as many tokens of each chain as one call takes. By default it is `run`.

        Args:
            wants: for each request, the nodes whose logits it wants; if it draws, one
            sought: how many of the likeliest tokens are looked for in each row
            chains: the chain of each request after that node, or none
            chunk: as in `run`
            held: how many of the likeliest tokens readings hold; a device looks for one more in
                each row, at no cost of its own
            temperatures: those of which a device adds up exponentials
            whole: whether more will be asked of rows than these numbers; a device then sends them

        Returns:
            an answer for each request, in the order of `wants`
        """
        return self.run(wants, chunk)

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

    One that its caller may change between two runs has a method `follow`, which takes up changes
    when a run begins and returns False if it has to be prepared anew.
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

    def refuse_features(self, layers: Layers) -> None:
        """Raise InputError unless its passes can return the hidden states of these layers."""
