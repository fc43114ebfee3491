"""Drafts without a draft model: copied from text that exists already, or drawn from counts.

Source:
    Yang et al. 2023 (LLMA, arXiv 2304.04487); Saxena 2023 (prompt lookup); EMS-SD
    (arXiv 2405.07542), section 4.1; Leviathan et al. 2023 (arXiv 2211.17192), section 3.6.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from decoders.distribution import Distribution, held
from decoders.methods.sources import Draft, Drafting, Kind, Source, certain, tree
from decoders.reading import Reading, Readings
from decoders.request import Ask, Request
from decoders.settings import setting
from decoders.shapes import NodeId, Probs, TokenId


class Reader(ABC):
    """Learns from the references, then the prompt, then the output as it grows, each token once.

    What it knows belongs to one request, so a seed gives the same tokens in any batch and order.

    Attributes:
        text: the tokens of the request that it has read
    """

    def __init__(self, references: Iterable[Sequence[TokenId]]):
        self.text: list[TokenId] = []
        for reference in references:
            self.read([], reference)

    def catch_up(self, request: Request) -> None:
        """Read what is new since the last call."""
        self.read(self.text, request.tree.text(request.tip, len(self.text)))

    @abstractmethod
    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        """Append tokens to a text and learn from them."""


class Lookup(Reader):
    """Proposes the tokens that followed an earlier occurrence of the output's last tokens.

    Args:
        request: the request being decoded
        match: longest run of tokens to look up; shorter runs are tried down to 1
        copy: most tokens proposed
        first: take the first occurrence in reading order, as LLMA's code does, rather than the last

    Source:
        LLMA, Yang et al. 2023 (arXiv 2304.04487); prompt lookup, Saxena 2023.
    """

    def __init__(self, request: Request, match: int, copy: int, first: bool = False):
        self.match, self.copy, self.first = match, copy, first
        # From a run of tokens to a text, and the index after the run in it.
        self._seen: dict[tuple[TokenId, ...], tuple[list[TokenId], int]] = {}
        super().__init__(request.references)

    def propose(self, request: Request) -> Generator[Ask, list[Reading], Draft]:
        """A chain of certain tokens; empty if nothing matches."""
        yield from ()  # asks no model
        self.catch_up(request)
        return certain(request, self._continuation())

    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        """Append tokens to a text, and record for each of them the runs that it follows."""
        for token in tokens:
            for n in range(1, min(self.match, len(text)) + 1):
                run = tuple(text[-n:])
                if not (self.first and run in self._seen):
                    self._seen[run] = text, len(text)
            text.append(token)

    def _continuation(self) -> list[TokenId]:
        for n in range(min(self.match, len(self.text)), 0, -1):
            match = self._seen.get(tuple(self.text[-n:]))
            if match:
                text, start = match
                copied = text[start : start + self.copy]
                # A match that reaches the end of the text continues with its own copy, so that a
                # loop is drafted whole.
                while text is self.text and len(copied) < self.copy:
                    copied += copied[: self.copy - len(copied)]
                return copied
        return []


MATCH = setting(
    2, "longest run of last tokens to look up; shorter runs are tried down to 1", low=1, high=16
)
COPY = setting(7, "most tokens copied per round", low=1, high=64)
PREFER = setting(
    "last",
    "which of several matches to copy: the last, or the first in references, prompt and output, "
    "as LLMA does",
    choices=("last", "first"),
)


@dataclass(frozen=True)
class Copied(Source):
    """A copy of what followed the last tokens before."""

    name = "lookup"
    kind = Kind.CERTAIN

    match: int = MATCH
    copy: int = COPY
    prefer: str = PREFER

    @property
    def longest(self) -> int:
        return self.copy

    def start(self, request: Request) -> Drafting:
        return Drafting(Lookup(request, self.match, self.copy, self.prefer == "first").propose)


class NGram(Reader):
    """Smoothed counts of tokens and pairs in references, the prompt and the output so far.

    Unigram: q1(x) = (count(x) + s / V) / (tokens + s).
    Bigram: q2(x | y) = (count(y, x) + s q1(x)) / (count(y, .) + s).
    Tokens are drawn from the warped tables, as from every other model.

    Args:
        request: the request being decoded
        smoothing: s > 0, in counts
        pairs: whether to use the bigram table
    """

    def __init__(self, request: Request, smoothing: float, pairs: bool):
        self.smoothing, self.pairs = smoothing, pairs
        # The loop sets it for drafts without a model.
        assert request.vocabulary is not None
        self._tokens = torch.zeros(request.vocabulary, dtype=torch.float64)
        self._pairs: dict[TokenId, Counter[TokenId]] = defaultdict(Counter)
        super().__init__(request.references)

    def predict(
        self, request: Request, nodes: list[NodeId]
    ) -> Generator[Ask, list[Reading], list[Distribution]]:
        """The warped distribution of the token after each node."""
        yield from ()  # asks no model
        return [request.warp(r) for r in self.after(request, nodes, held(request.warping))]

    def after(self, request: Request, nodes: list[NodeId], likeliest: int) -> Readings:
        """What follows each node, with some of the likeliest tokens read."""
        self.catch_up(request)
        prior = (self._tokens + self.smoothing / len(self._tokens)) / (
            self._tokens.sum() + self.smoothing
        )
        rows = torch.stack(
            [self._after(request.tree.tokens[n], prior) if self.pairs else prior for n in nodes]
        )
        return Readings(rows.log(), likeliest)

    def _after(self, token: TokenId, prior: Probs) -> Probs:
        row, followers = self.smoothing * prior, self._pairs[token]
        row[list(followers)] += torch.tensor(list(followers.values()), dtype=row.dtype)
        return row / (followers.total() + self.smoothing)

    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        for token in tokens:
            self._tokens[token] += 1
            if text:
                self._pairs[text[-1]][token] += 1
            text.append(token)


ORDER = setting(
    "bigram",
    "the units counted: pairs of tokens, or single ones",
    choices=("bigram", "unigram"),
)
COUNTED_LENGTH = setting(3, "draft tokens per round (gamma)", low=1, high=64)
SMOOTHING = setting(1.0, "counts added for unseen tokens and pairs", low=1e-6, high=1e6)


@dataclass(frozen=True)
class Counted(Source):
    """Draws from counts of tokens and pairs seen so far."""

    name = "ngram"
    kind = Kind.COUNTED

    order: str = ORDER
    draft_length: int = COUNTED_LENGTH
    smoothing: float = SMOOTHING

    @property
    def longest(self) -> int:
        return self.draft_length

    def start(self, request: Request) -> Drafting:
        predict = NGram(request, self.smoothing, self.order == "bigram").predict
        return Drafting(partial(tree, expansion=(1,) * self.draft_length, predict=predict), predict)
