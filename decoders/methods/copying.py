"""The combinations without a draft model that have a name, each with its paper."""

from dataclasses import dataclass

from decoders.inputs import as_references
from decoders.methods.combination import Combination, rule
from decoders.methods.copies import (
    COPY,
    COUNTED_LENGTH,
    FACTOR,
    LEAST,
    LONGEST,
    MATCH,
    MOST,
    ORDER,
    PREFER,
    SHAPE,
    SMOOTHING,
    Copied,
    Counted,
    Suffix,
)
from decoders.methods.rules import LENIENCE, MatchRule, Parts, Tokenwise
from decoders.methods.trees import RECYCLED_DEPTH, RECYCLED_NODES, WIDTH, Recycled
from decoders.settings import setting

REFERENCES = setting(
    (), "reference documents, as texts, that drafts may copy from", read=as_references
)


@dataclass(frozen=True)
class PromptLookup(Combination):
    name = "lookup"
    title = "Prompt lookup"
    paper, section = "Yang et al. 2023 (LLMA); Saxena 2023 (prompt lookup)", "EMS-SD 4.1"
    summary = (
        "Copies its drafts from the prompt, the output or reference documents: no draft model at "
        "all."
    )

    match: int = MATCH
    copy: int = COPY
    references: tuple[str, ...] = REFERENCES
    prefer: str = PREFER
    lenience: float = LENIENCE
    rule: str = rule(Copied)

    @property
    def parts(self) -> Parts:
        return Copied(self.match, self.copy, self.prefer), self.chosen(Tokenwise(self.lenience))


@dataclass(frozen=True)
class NGramDrafts(Combination):
    name = "ngram"
    title = "N-gram drafts"
    paper, section = "Leviathan et al. 2023", "3.6"
    summary = (
        "Drafts from counts of words and pairs seen so far: no draft model, at almost no cost."
    )

    order: str = ORDER
    draft_length: int = COUNTED_LENGTH
    smoothing: float = SMOOTHING
    references: tuple[str, ...] = REFERENCES
    lenience: float = LENIENCE
    rule: str = rule(Counted)

    @property
    def parts(self) -> Parts:
        return (
            Counted(self.order, self.draft_length, self.smoothing),
            self.chosen(Tokenwise(self.lenience)),
        )


@dataclass(frozen=True)
class SuffixDecoding(Combination):
    name = "suffix"
    title = "Suffix decoding"
    paper, section = "Oliaro et al. 2024 (SuffixDecoding)", "3"
    summary = (
        "Looks up the longest run of last tokens that it has seen, and drafts what most often "
        "followed it: longer drafts after longer runs."
    )

    match: int = LONGEST
    copy: int = MOST
    factor: float = FACTOR
    least: float = LEAST
    shape: str = SHAPE
    references: tuple[str, ...] = REFERENCES
    rule: str = rule(Suffix, default=MatchRule)

    @property
    def parts(self) -> Parts:
        source = Suffix(self.match, self.copy, self.factor, self.least, self.shape)
        return source, self.chosen(MatchRule())


@dataclass(frozen=True)
class TokenRecycling(Combination):
    name = "recycling"
    title = "Token recycling"
    paper, section = "Luo et al. 2024 (Token Recycling)", "3"
    summary = (
        "Keeps what the large model found likely after each token, refused guesses included, and "
        "drafts a tree of it."
    )

    nodes: int = RECYCLED_NODES
    depth: int = RECYCLED_DEPTH
    width: int = WIDTH
    references: tuple[str, ...] = REFERENCES

    @property
    def parts(self) -> Parts:
        return Recycled(self.nodes, self.depth, self.width), MatchRule()
