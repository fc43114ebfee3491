"""What passes give (Output, Answer, Further), and what they may be told of others (Outlook)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
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
        rows: the raw logits of the whole pass, and of those made with it, (n, V), in memory that no
            later pass overwrites, because readings look at them on demand
        part: the rows at the request's nodes; None if only a part of the prompt was fed, so that
            the request must ask again
        cache_bytes: bytes read from the request's cache
        weight_bytes: bytes of weights read, which all requests of the pass share
        waste: the padding; None in batches without padding
        passes: forward passes that the answer took
        features: hidden states of every node that was fed, parts of a prompt included; None unless
            layers were requested
        further: passes that were made in advance, whose rows are among `rows`
        found: what was already read of all rows
    """

    rows: Logits
    part: slice | None
    cache_bytes: int
    weight_bytes: int
    waste: Waste | None = None
    passes: int = 1
    features: Features | None = None
    further: "Further | None" = None
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


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a request will probably go on: it draws tokens, each after the one before.

    Attributes:
        tokens: how many of them the model may feed before it is asked; of rounds, how many tokens
            the text may grow by
        temperature: 0 takes the likeliest token
        likeliest: number of the likeliest tokens that are drawn from; 0 for all
        known: whether top-p is a part of their mass alone, as after a top-k
        top_p, min_p: as in a Warping
        numbers: the uniform numbers that will draw, and of rounds test, in their order; any, where
            nothing is left to chance
        ends: tokens that end the text
        sought: how many of the likeliest tokens are looked for in each row; of rounds, in those of
            the target and in those of the draft model
        rule: of rounds, the rule that judges the drafts, see `decoders.asks.Guess`
        doubt: of rounds, when drafts end early, see `decoders.asks.Doubt`
    """

    tokens: int
    temperature: float
    likeliest: int
    known: bool
    top_p: float
    min_p: float
    numbers: Sequence[float]
    ends: Sequence[int]
    sought: Sequence[int]
    rule: tuple[str, Sequence[float], bool] = ("", (), False)
    doubt: tuple[float, float] = (0.0, math.inf)

    @property
    def warping(self) -> tuple[float, ...]:
        """As the kernels want it."""
        few, known = float(self.likeliest), float(self.known)
        return self.temperature, few, known, self.top_p, self.min_p


class Made(NamedTuple):
    """Passes that were made before they were asked for, each after the tokens of the one before.

    Attributes:
        after: which token their first one follows, of those fed in advance; counted from 1, since 0
            is the node that all of them follow
        place: the place of their first token in the text, and the cache row that this has
            overwritten
        tokens: the tokens that they fed, each after the one before
        first: how many of these the first pass fed; each of the others fed one
        rows: the logits that follow these tokens, a single row for each pass, if there are several
    """

    after: int
    place: int
    tokens: list[TokenId]
    first: int
    rows: slice

    @property
    def passes(self) -> int:
        """The number of passes."""
        return 1 + len(self.tokens) - self.first

    def split(self, count: int, fed: int) -> tuple["Made", "Made"]:
        """The first `count` of several passes, and the others.

        Args:
            count: less than there are
            fed: how many tokens were fed in advance before these
        """
        cut, step = self.first + count - 1, self.rows.step or 1
        row = self.rows.start + count * step
        one = self._replace(tokens=self.tokens[:cut], rows=slice(self.rows.start, row, step))
        rows = slice(row, self.rows.stop, step)
        return one, Made(fed + cut, self.place + cut, self.tokens[cut:], 1, rows)


@dataclass(frozen=True, slots=True)
class Further:
    """Passes of one model for one request that were made before they were asked for.

    Attributes:
        node: the node that their tokens follow
        rows: the raw logits of all of them, (n, V); on the host perhaps as an array
        made: the passes, in order
        weight_bytes: bytes of weights that each has read
        found: what was already read of the rows
    """

    node: NodeId
    rows: Logits | np.ndarray
    made: Sequence[Made]
    weight_bytes: int
    found: Found | None = None

    @property
    def passes(self) -> int:
        """The number of passes."""
        return sum(each.passes for each in self.made)
