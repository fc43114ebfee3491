"""Suffix decoding: drafts from counted runs of tokens, of the text so far and of other texts.

Source:
    Oliaro et al. 2024 (SuffixDecoding, arXiv 2411.04975), section 3.
"""

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from decoders.methods.modelless import Reader
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
    planted,
)
from decoders.request import Ask, Request
from decoders.settings import claim, setting
from decoders.shapes import TokenId

LONGEST = setting(8, "longest run of last tokens to look up", low=1, high=64)
MOST = setting(24, "most draft tokens per round", low=1, high=LARGEST_TREE)
FACTOR = setting(3.0, "draft tokens per token of the run that was found", low=0.1, high=64.0)
LEAST = setting(
    0.1, "least share of the counts that the path to a draft token may have", low=0.0, high=1.0
)
SURE = setting(1, "shortest run of last tokens to copy after", low=1, high=64)
SHAPE = setting(
    "chain",
    "the likeliest token after each, or several: a tree, which only the rule match judges",
    choices=("chain", "tree"),
)


class Run:
    """A run of tokens.

    Attributes:
        count: how often it occurs
        token: its last token
        longer: the runs with one token more, by that token
    """

    __slots__ = ("count", "longer", "token")

    def __init__(self, token: TokenId = -1):
        self.count, self.token = 0, token
        self.longer: dict[TokenId, Run] = {}


# The runs that end at one place of a text, the longest first, down to one token.
Ends = list[Run]


class Runs:
    """All runs of tokens in some texts, counted, each with what followed it.

    Args:
        match: the longest run that is looked up
    """

    def __init__(self, match: int):
        self.match, self.none = match, Run()

    def add(self, ends: Ends, token: TokenId) -> Ends:
        """Count a token after the runs that end before it; returns those that end with it."""
        grown = []
        for run in (*ends, self.none):
            longer = run.longer.get(token)
            if longer is None:
                longer = run.longer[token] = Run(token)
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
        request: the request being decoded
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
            found = yield from self._likeliest(request, runs, ends)
            best = max(best, found, key=lambda leaves: sum(leaf.chance for leaf in leaves))
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
    found = sorted(longer.values(), key=lambda run: -run.count)
    total = sum(run.count for run in found)
    return [(run.token, run.count / total) for run in found]


@dataclass(frozen=True)
class Suffix(Source):
    """What most often followed the last tokens before, as a chain or as a tree."""

    name = "suffix"

    match: int = LONGEST
    copy: int = MOST
    factor: float = FACTOR
    least: float = LEAST
    shape: str = SHAPE
    sure: int = SURE

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

    match: int = LONGEST
    copy: int = MOST
    factor: float = FACTOR
    least: float = LEAST
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
