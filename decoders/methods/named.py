"""The combinations with a draft model that have a name, each with its paper."""

from dataclasses import dataclass

from decoders.methods.block import Block, MultiPath, Traversal
from decoders.methods.combination import Combination, draft, rule
from decoders.methods.rules import LENIENCE, KSeq, MatchRule, MultiRound, Parts, Tokenwise
from decoders.methods.sources import (
    AUTO_LENGTH,
    DRAFT_LENGTH,
    DRAFTS,
    EXPANSION,
    GATE,
    Chain,
    Distinct,
    Paths,
    Tree,
)
from decoders.methods.trees import BY, DEPTH, NODES, BestFirst
from decoders.settings import setting


@dataclass(frozen=True)
class Speculative(Combination):
    name = "speculative"
    title = "Speculative"
    paper, section = "Leviathan et al. 2023", "2.3, A.5"
    summary = (
        "A small model drafts a few tokens, the large one tests them all in one pass and corrects "
        "the first miss."
    )

    draft_length: int | str = AUTO_LENGTH
    confidence: float = setting(
        0.0,
        "stop drafting when the draft model's largest probability is below this; 0 never stops",
        low=0.0,
        high=1.0,
    )
    gate: float = GATE
    lenience: float = LENIENCE
    rule: str = rule()
    draft: str = draft(Chain)

    @property
    def parts(self) -> Parts:
        return (
            self.chosen(Chain(self.draft_length, self.confidence, self.gate)),
            self.chosen(Tokenwise(self.lenience)),
        )


@dataclass(frozen=True)
class BlockVerification(Combination):
    name = "block"
    title = "Block verification"
    paper, section = "Sun et al. 2024 (block verification)", "abstract"
    summary = (
        "Judges a draft as a whole instead of token by token, so more of it is kept: the same text "
        "in fewer passes."
    )

    draft_length: int = DRAFT_LENGTH
    draft: str = draft(Chain, Block)

    @property
    def parts(self) -> Parts:
        return self.chosen(Chain(self.draft_length)), Block()


@dataclass(frozen=True)
class SpecTr(Combination):
    name = "spectr"
    title = "SpecTr"
    stands_for = "speculative decoding by optimal transport"
    paper, section = "Sun et al. 2023 (SpecTr)", "K-SEQ"
    summary = (
        "Several drafts at once: the large model keeps the one that agrees longest, by optimal "
        "transport."
    )

    drafts: int = DRAFTS
    draft_length: int = DRAFT_LENGTH

    @property
    def parts(self) -> Parts:
        return Paths(self.drafts, self.draft_length), KSeq()


@dataclass(frozen=True)
class SpecInfer(Combination):
    name = "specinfer"
    title = "SpecInfer"
    paper, section = "Miao et al. 2023 (SpecInfer)", "multi-step speculative sampling"
    summary = (
        "A tree of drafts, verified in one pass; the children of a token are tried one after "
        "another."
    )

    expansion: tuple[int, ...] = EXPANSION

    @property
    def parts(self) -> Parts:
        return Tree(self.expansion), MultiRound()


@dataclass(frozen=True)
class MCSS(SpecInfer):
    name = "mcss"
    title = "MCSS"
    stands_for = "multi-candidate speculative sampling"
    paper, section = "Yang et al. 2024 (MCSD)", "without replacement"
    summary = "SpecInfer's tree with children that all differ, so that no token is tried twice."

    @property
    def parts(self) -> Parts:
        return Distinct(self.expansion), MultiRound()


@dataclass(frozen=True)
class Match(Combination):
    name = "match"
    title = "Match"
    paper, section = "Hannun 2024 (mlx-lm)", "speculative_generate_step"
    summary = (
        "Draws the large model's token first and keeps the guess that equals it: exact for any "
        "guess, without the small model's probabilities."
    )

    draft_length: int | str = AUTO_LENGTH
    draft: str = draft(Chain, MatchRule)

    @property
    def parts(self) -> Parts:
        return self.chosen(Chain(self.draft_length)), MatchRule()


@dataclass(frozen=True)
class TraversalVerification(Combination):
    name = "traversal"
    title = "Traversal verification"
    paper, section = "Weng et al. 2025 (traversal verification)", "abstract"
    summary = (
        "Judges a tree of drafts from its leaves to its root, so that a late fit makes up for an "
        "early doubt: exact, and more of the tree is kept."
    )

    expansion: tuple[int, ...] = EXPANSION
    draft: str = draft(Tree, Traversal)

    @property
    def parts(self) -> Parts:
        return self.chosen(Tree(self.expansion)), Traversal()


@dataclass(frozen=True)
class MultiPathBlock(Combination):
    name = "multipath"
    title = "Multi-path block"
    paper, section = "Thomas and Pal 2026 (multi-path block verification)", "abstract"
    summary = (
        "Draws several drafts, takes the one that the large model likes best and judges it as a "
        "whole: exact, because it knows how the best was chosen."
    )

    drafts: int = DRAFTS
    draft_length: int = DRAFT_LENGTH
    draft: str = draft(Paths, MultiPath)

    @property
    def parts(self) -> Parts:
        return self.chosen(Paths(self.drafts, self.draft_length)), MultiPath()


@dataclass(frozen=True)
class BestFirstTrees(Combination):
    name = "best_first"
    title = "Best-first trees"
    paper, section = "Li et al. 2024 (EAGLE-2); Wang et al. 2024 (OPT-Tree)", "4; 3"
    summary = (
        "Spends a budget of guesses on the likeliest paths: wide where the small model doubts, "
        "deep where it is sure."
    )

    nodes: int = NODES
    depth: int = DEPTH
    by: str = BY

    @property
    def parts(self) -> Parts:
        return BestFirst(self.nodes, self.depth, self.by), MatchRule()
