"""Drafts of text that exists already, of counts, and trees of the likeliest tokens.

A tree of chosen tokens holds the likeliest paths of a draft model, of counts, of earlier readings.

Source:
    Yang et al. 2023 (LLMA, arXiv 2304.04487); Saxena 2023 (prompt lookup); EMS-SD
    (arXiv 2405.07542), section 4.1; Leviathan et al. 2023 (arXiv 2211.17192), section 3.6; Oliaro
    et al. 2024 (SuffixDecoding, arXiv 2411.04975), section 3; Li et al. 2024 (EAGLE-2, arXiv
    2406.16858), section 4; Wang et al. 2024 (OPT-Tree, arXiv 2406.17276), section 3; Luo et al.
    2024 (Token Recycling, arXiv 2408.08696), section 3.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from decoders.distribution import Distribution
from decoders.methods.sources import (
    DRAFT_LENGTH,
    LARGEST_TREE,
    Draft,
    Drafting,
    Headed,
    Kind,
    Leaf,
    Offered,
    Source,
    best_first,
    certain,
    planted,
    tree,
)
from decoders.reading import Reading, Readings, held
from decoders.request import Ask, Request
from decoders.settings import claim, setting, shared
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
        self.read(self.text, request.tree.text(request.tip, len(self.text)))

    @abstractmethod
    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        """Append tokens to a text and learn from them."""


class Lookup(Reader):
    """Proposes the tokens that followed an earlier occurrence of the output's last tokens.

    Args:
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


@dataclass(frozen=True)
class Copied(Source):
    """A copy of what followed the last tokens before."""

    name = "lookup"
    kind = Kind.CERTAIN

    match: int = setting(
        2, "longest run of last tokens to look up; shorter runs are tried down to 1", low=1, high=16
    )
    copy: int = setting(7, "most tokens copied per round", low=1, high=64)
    prefer: str = setting(
        "last",
        "which of several matches to copy: the last, or the first in references, prompt and "
        "output, as LLMA does",
        choices=("last", "first"),
    )

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
        smoothing: s > 0, in counts
        pairs: whether to use the bigram table
    """

    def __init__(self, request: Request, smoothing: float, pairs: bool):
        self.smoothing, self.pairs = smoothing, pairs
        self._tokens = torch.zeros(request.vocabulary, dtype=torch.float64)
        self._pairs: dict[TokenId, Counter[TokenId]] = defaultdict(Counter)
        super().__init__(request.references)

    def predict(
        self, request: Request, nodes: list[NodeId]
    ) -> Generator[Ask, list[Reading], list[Distribution]]:
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


@dataclass(frozen=True)
class Counted(Source):
    """Draws from counts of tokens and pairs seen so far."""

    name = "ngram"
    kind = Kind.COUNTED

    order: str = setting(
        "bigram",
        "the units counted: pairs of tokens, or single ones",
        choices=("bigram", "unigram"),
    )
    draft_length: int = setting(3, "draft tokens per round (gamma)", low=1, high=64)
    smoothing: float = setting(1.0, "counts added for unseen tokens and pairs", low=1e-6, high=1e6)

    @property
    def longest(self) -> int:
        return self.draft_length

    def start(self, request: Request) -> Drafting:
        predict = NGram(request, self.smoothing, self.order == "bigram").predict
        return Drafting(partial(tree, expansion=(1,) * self.draft_length, predict=predict), predict)


class Stretch:
    """A run of tokens.

    Attributes:
        count: how often it occurs
        token: its last token
        longer: the runs with one token more, by that token
    """

    __slots__ = ("count", "longer", "token")

    def __init__(self, token: TokenId = -1):
        self.count, self.token = 0, token
        self.longer: dict[TokenId, Stretch] = {}


# The runs that end at one place of a text, the longest first, down to one token.
Ends = list[Stretch]


class Runs:
    """All runs of tokens in some texts, counted, each with what followed it.

    Args:
        match: the longest run that is looked up
    """

    def __init__(self, match: int):
        self.match, self.none = match, Stretch()

    def add(self, ends: Ends, token: TokenId) -> Ends:
        """Count a token after the runs that end before it; returns those that end with it."""
        grown = []
        for run in (*ends, self.none):
            longer = run.longer.get(token)
            if longer is None:
                longer = run.longer[token] = Stretch(token)
            longer.count += 1
            grown.append(longer)
        return grown[-self.match :]

    def after(self, ends: Ends, token: TokenId) -> Ends:
        """The known runs that end with a token, from those that end before it."""
        return [run.longer[token] for run in (*ends, self.none) if token in run.longer]


class Suffixes(Reader):
    """Proposes what most often followed the longest known run of tokens that ends the text.

    It knows the runs of the request's own text, and those of the references, which are texts
    finished before. The latter are counted once for all requests of a call, and no request adds to
    them, so a seed gives the same tokens in any batch and order.

    Args:
        source: the settings
    """

    def __init__(self, request: Request, source: "Suffix"):
        super().__init__(())
        self.source, self.own = source, Runs(source.match)
        key = Suffixes, source.match
        if key not in request.shared:
            request.shared[key] = finished = Runs(source.match)
            for reference in request.references:
                ends = Ends()
                for token in reference:
                    ends = finished.add(ends, token)
        self.finished: Runs = request.shared[key]
        self.ends = self.finished_ends = Ends()

    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        for token in tokens:
            text.append(token)
            self.ends = self.own.add(self.ends, token)
            self.finished_ends = self.finished.after(self.finished_ends, token)

    def propose(self, request: Request) -> Generator[Ask, Any, Draft]:
        """The proposal whose chances have the larger sum, of the own runs and the finished ones."""
        self.catch_up(request)
        best: list[Leaf] = []
        for runs, ends in ((self.own, self.ends), (self.finished, self.finished_ends)):
            leaves = yield from self._likeliest(request, runs, ends)
            best = max(best, leaves, key=lambda leaves: sum(leaf.chance for leaf in leaves))
        return planted(request, best)

    def _likeliest(
        self, request: Request, runs: Runs, ends: Ends
    ) -> Generator[Ask, Any, list[Leaf]]:
        matched = max((len(ends) - i for i, run in enumerate(ends) if run.longer), default=0)
        if matched < self.source.sure:
            return []
        size = min(self.source.copy, math.ceil(self.source.factor * matched))
        width = None if self.source.shape == "tree" else 1

        def offer(layer: list[Leaf]) -> Generator[Ask, Any, list[Offered]]:
            yield from ()  # asks no model
            for leaf in layer:
                leaf.at = runs.after(leaf.parent.at, leaf.token) if leaf.parent else ends
            return [_followers(leaf.at)[:width] for leaf in layer]

        return (yield from best_first(request, size, size, offer, self.source.least))


def _followers(ends: Ends) -> list[tuple[TokenId, float]]:
    """What followed the longest of these runs that was followed by something, with its share."""
    longer = next((run.longer for run in ends if run.longer), {})
    runs = sorted(longer.values(), key=lambda run: -run.count)
    total = sum(run.count for run in runs)
    return [(run.token, run.count / total) for run in runs]


@dataclass(frozen=True)
class Suffix(Source):
    """What most often followed the last tokens before, as a chain or as a tree."""

    name = "suffix"

    match: int = setting(8, "longest run of last tokens to look up", low=1, high=64)
    copy: int = setting(24, "most draft tokens per round", low=1, high=LARGEST_TREE)
    factor: float = setting(
        3.0, "draft tokens per token of the run that was found", low=0.1, high=64.0
    )
    least: float = setting(
        0.1, "least share of the counts that the path to a draft token may have", low=0.0, high=1.0
    )
    shape: str = setting(
        "chain",
        "the likeliest token after each, or several: a tree, which only the rule match judges",
        choices=("chain", "tree"),
    )
    sure: int = setting(1, "shortest run of last tokens to copy after", low=1, high=64)

    @claim
    def kind(self) -> Kind:
        return Kind.CHOSEN if self.shape == "tree" else Kind.CERTAIN

    @property
    def size(self) -> int:
        return self.copy if self.shape == "tree" else 0

    @property
    def longest(self) -> int:
        return self.copy

    def start(self, request: Request) -> Drafting:
        return Drafting(Suffixes(request, self).propose)


@dataclass(frozen=True)
class SuffixElseHead(Source):
    """What followed the last tokens before, where the run that is found is long; else a head's.

    Which of the two drafts depends on the text alone, so a rule that judges both judges this.

    Source:
        Oliaro et al. 2024 (SuffixDecoding, arXiv 2411.04975), section 4.2: with a score of the run
        that is found, where this has its length.
    """

    name = "suffix, else head"
    kind = Kind.EITHER
    uses_head = True

    match: int = shared(Suffix, "match")
    copy: int = shared(Suffix, "copy")
    factor: float = shared(Suffix, "factor")
    least: float = shared(Suffix, "least")
    sure: int = setting(
        3, "shortest run of last tokens to copy after; after shorter ones the head drafts", low=1,
        high=64,
    )  # fmt: skip
    draft_length: int = DRAFT_LENGTH

    @property
    def longest(self) -> int:
        return max(self.copy, self.draft_length)

    def start(self, request: Request) -> Drafting:
        copied = Suffix(self.match, self.copy, self.factor, self.least, sure=self.sure).start(
            request
        )
        head = Headed(self.draft_length).start(request)

        def propose(request: Request) -> Generator[Ask, Any, Draft]:
            draft = yield from copied.propose(request)
            return draft if draft.draws else (yield from head.propose(request))

        return Drafting(propose)


def nodes(default: int) -> Any:
    return setting(
        default, "most draft tokens per round, in all branches", low=1, high=LARGEST_TREE
    )


def depth(default: int) -> Any:
    return setting(default, "most draft tokens on a path", low=1, high=64)


@dataclass(frozen=True)
class Chosen(Source, ABC):
    """A tree of the tokens that are likeliest by some measure; only the rule `match` judges it."""

    kind = Kind.CHOSEN

    nodes: int = nodes(16)
    depth: int = depth(6)

    @property
    def size(self) -> int:
        return self.nodes


@dataclass(frozen=True)
class BestFirst(Chosen):
    """The likeliest paths of the draft model, of a head, or of counts.

    Raw probabilities measure them, so that a tree branches at temperature 0 too.
    """

    name = "best_first"

    by: str = setting(
        "model",
        "whose probabilities choose the tokens: the draft model's, a head's, or those of counts "
        "(ngram)",
        choices=("model", "head", "ngram"),
    )

    @claim
    def uses_draft(self) -> bool:
        return self.by == "model"

    @claim
    def uses_head(self) -> bool:
        return self.by == "head"

    @property
    def size(self) -> int:
        """Nodes that later ones push out of the tree have been read by their model, too."""
        return self.nodes * (1 if self.by == "ngram" else self.depth)

    def start(self, request: Request) -> Drafting:
        counts = NGram(request, 1.0, pairs=True) if self.by == "ngram" else None
        return Drafting(partial(self._propose, counts=counts))

    def _propose(self, request: Request, counts: NGram | None) -> Generator[Ask, Any, Draft]:
        def offer(layer: list[Leaf]) -> Generator[Ask, Any, list[Offered]]:
            for leaf in layer:
                leaf.at = request.tree.add(leaf.parent.at, leaf.token) if leaf.parent else root
            nodes = [leaf.at for leaf in layer]
            if counts:
                return [self._likeliest(r) for r in counts.after(request, nodes, self.nodes)]
            readings = yield request.ask(self.drafter, nodes, self.nodes)
            return [self._likeliest(r) for r in readings]

        root = request.tip
        return planted(request, (yield from best_first(request, self.nodes, self.depth, offer)))

    def _likeliest(self, reading: Reading) -> Iterator[tuple[TokenId, float]]:
        total = reading.log_sum
        for token, logit in zip(*reading.likeliest(self.nodes), strict=True):
            yield token, math.exp(logit - total)


# Chances by rank, which shape the tree as if its template were fixed.
CHANCES = tuple(0.6 * 0.4**rank for rank in range(16))


class Recycler(Reader):
    """Proposes the tokens that were likeliest after the same token when the target last read it.

    After each pass it learns from all nodes of the draft, refused ones too; of several nodes with
    one token, the last counts. Where the target has said nothing yet, it proposes what followed the
    token in the references and the text, the last pair first.

    Args:
        source: the settings
    """

    def __init__(self, request: Request, source: "Recycled"):
        self.source = source
        self.said: dict[TokenId, list[TokenId]] = {}
        self.followers: dict[TokenId, list[TokenId]] = {}
        super().__init__(request.references)

    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        for token in tokens:
            if text:
                known = self.followers.get(text[-1], [])
                first = [token, *(x for x in known if x != token)]
                self.followers[text[-1]] = first[: self.source.width]
            text.append(token)

    def learn(self, draft: Draft, readings: Sequence[Reading]) -> None:
        tokens = [self.text[-1], *(d.token for d in draft.draws)]
        for token, reading in zip(tokens, readings, strict=True):
            self.said[token] = reading.likeliest(self.source.width)[0]

    def propose(self, request: Request) -> Generator[Ask, Any, Draft]:
        self.catch_up(request)
        return planted(
            request,
            (yield from best_first(request, self.source.nodes, self.source.depth, self._offer)),
        )

    def _offer(self, layer: list[Leaf]) -> Generator[Ask, Any, list[Offered]]:
        yield from ()  # asks no model
        said, followers = self.said, self.followers
        return [
            zip(said.get(leaf.token) or followers.get(leaf.token, []), CHANCES, strict=False)
            for leaf in layer
        ]


@dataclass(frozen=True)
class Recycled(Chosen):
    """What the target said after the same token before."""

    name = "recycling"

    # The paper's tree has 80 nodes; each costs more where a processor reads them, as here.
    nodes: int = nodes(4)
    depth: int = depth(4)
    width: int = setting(8, "tokens kept after each token (k)", low=1, high=len(CHANCES))

    def start(self, request: Request) -> Drafting:
        recycler = Recycler(request, self)
        return Drafting(recycler.propose, learn=recycler.learn, likeliest=self.width)
