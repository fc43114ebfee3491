"""Decoders as combinations of a draft source and a rule, and those that papers have named.

`speculative(rule="traversal", draft="tree(expansion=3,2)")` has both by name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from types import ModuleType
from typing import Any, ClassVar

from decoders.errors import InputError, quoted
from decoders.inputs import as_references
from decoders.methods import block, copies, lossy, mtad, rules, sources
from decoders.methods.block import Block, MultiPath, Traversal
from decoders.methods.rules import (
    KSeq,
    MatchRule,
    MultiRound,
    Parts,
    Rule,
    Tokenwise,
    speculate,
)
from decoders.methods.sources import (
    DRAFT_LENGTH,
    Chain,
    Distinct,
    Paths,
    Source,
    Tree,
)
from decoders.request import Request
from decoders.settings import Criterion, Decoding, Law, Method, claim, nearest, setting, shared


def by_name(base: type[Any], *modules: ModuleType) -> dict[str, type[Any]]:
    """The classes of these modules that inherit from `base` and have a name, in their order."""
    return {
        each.name: each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, base)
        and each.__module__ == module.__name__
        and hasattr(each, "name")
    }


# A rule or a source that joins one of these files is known by its name.
RULES: Mapping[str, type[Rule]] = by_name(Rule, rules, block, lossy, mtad)
SOURCES: Mapping[str, type[Source]] = by_name(Source, sources, copies)


def part(parts: Mapping[str, type[Any]], owner: str, text: object, **more: Any) -> Any:
    """A rule or a source from its name, with settings in brackets: "lookup(copy=5, match=3)".

    Args:
        parts: RULES or SOURCES
        owner: the name of the decoder, for messages
        text: the name and the settings
        more: further settings, for which those in the text go first

    Raises:
        InputError: for anything else
    """
    match = (
        re.fullmatch(r"\s*([\w, ]*\w)\s*(?:\((.*)\))?\s*", text) if isinstance(text, str) else None
    )
    what = "draft" if parts is SOURCES else "rule"
    if not match or match[1] not in parts:
        word = match[1] if match else ""
        raise InputError(f"{owner}: there is no {what} {quoted(text)}: {nearest(word, parts)}")
    name, inside = match.groups()
    for each in re.split(r",\s*(?=[a-z_]+\s*=)", inside) if inside else ():
        key, equals, value = (word.strip() for word in each.partition("="))
        if not equals:
            raise InputError(
                f"{owner}: settings of a {what} are written as {name}(name=value), not "
                f"{quoted(text)}."
            )
        usual = parts[name].__dataclass_fields__.get(key)
        # One number of several, as in tree(expansion=2), stays a text that the setting reads.
        several = usual is not None and isinstance(usual.default, tuple)
        more[key] = value if several else _number(value)
    return parts[name](**more)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _valid(parts: Mapping[str, type[Any]], owner: str, text: object) -> object:
    part(parts, owner, text)
    return text


class Combination(Method):
    """A decoder made of a source and a rule, whose settings it has by the same names.

    A setting `draft` names another source, a setting `rule` another rule.

    Attributes:
        usual: the source and the rule where no setting names others
        takes: its settings in order: those of the two by name, and "draft", "rule", "references"

    Raises:
        InputError: also if the two do not fit
    """

    usual: ClassVar[tuple[type[Source], type[Rule]]]
    takes: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        if "takes" not in vars(cls):
            return
        source, rule = cls.usual
        both = {"draft", "rule"} <= {*cls.takes}  # then any source and any rule may be tried
        drafts = [s.name for s in SOURCES.values() if both or rule.fits(s)]
        rules = [r.name for r in RULES.values() if both or r.fits(source)]
        known = {
            **source.__dataclass_fields__,
            **rule.__dataclass_fields__,
            "draft": setting(
                source.name,
                "where drafts come from: the draft model, a head of the target (head), counts "
                "(ngram), copies (lookup, suffix; a head where nothing is found) or what the "
                "target said before (recycling)",
                choices=drafts,
                read=partial(_valid, SOURCES),
            ),
            "rule": setting(
                rule.name, "how drafts are judged", choices=rules, read=partial(_valid, RULES)
            ),
            "references": setting(
                (), "reference documents, as texts, that drafts may copy from", read=as_references
            ),
        }
        cls.__annotations__ = dict.fromkeys(cls.takes, Any) | cls.__annotations__
        for name in cls.takes:
            if name not in vars(cls):
                setattr(cls, name, known[name])

    @cached_property
    def parts(self) -> Parts:
        """The source and the rule that its settings say; requests share them."""
        source, rule = self.usual
        return self._part(SOURCES, "draft", source), self._part(RULES, "rule", rule)

    def __post_init__(self) -> None:
        super().__post_init__()
        source, rule = self.parts
        if not rule.fits(source):
            fit = [s.name for s in SOURCES.values() if rule.fits(s)]
            raise InputError(
                f"{self.name}: the rule {rule.name} cannot judge the draft {source.name}, "
                f"{source.kind}; take the draft {' or '.join(fit)}, or the rule "
                f"{' or '.join(r.name for r in RULES.values() if r.fits(source))}."
            )

        if source.longest <= rule.window:
            raise InputError(
                f"{self.name}: the rule {rule.name} needs drafts longer than its window of "
                f"{rule.window}; lengthen the draft or shorten the window."
            )

    def _part(self, parts: Mapping[str, type[Any]], key: str, usual: type[Any]) -> Any:
        """The part that the setting `key` names, or the usual one, with the settings it shares."""
        both = [f for f in fields(self) if f.name in usual.__dataclass_fields__]
        text = getattr(self, key, usual.name)
        if text == usual.name:
            return usual(**{f.name: getattr(self, f.name) for f in both})
        given = {f.name: value for f in both if (value := getattr(self, f.name)) != f.default}
        theirs = part(parts, self.name, text).__dataclass_fields__
        for name in given:
            if name not in theirs:
                raise InputError(
                    f"{self.name}: {name} is no setting of {key}={quoted(text)}, which has "
                    f"{', '.join(sorted(theirs)) or 'none'}; leave it out."
                )
        return part(parts, self.name, text, **given)

    @property
    def criterion(self) -> Criterion:
        return self.parts[1].criterion

    @claim
    def law(self) -> Law | None:
        source, rule = self.parts
        return rule.law if source.kind in rule.judges else None

    @claim
    def uses_draft(self) -> bool:
        return self.parts[0].uses_draft

    @claim
    def uses_head(self) -> bool:
        return self.parts[0].uses_head

    @property
    def branches(self) -> tuple[int, int]:
        size = self.parts[0].size
        return 1, 1 + size if size else 0

    def decode(self, request: Request) -> Decoding:
        source, rule = self.parts
        return speculate(request, source.start(request), rule)


@dataclass(frozen=True)
class Speculative(Combination):
    name = "speculative"
    title = "Speculative"
    paper, section = "Leviathan et al. 2023", "2.3, A.5"
    summary = (
        "A small model drafts a few tokens, the large one tests them all in one pass and corrects "
        "the first miss."
    )
    usual = Chain, Tokenwise
    takes = "draft_length", "confidence", "gate", "lenience", "rule", "draft"

    confidence: float = setting(
        0.0,
        "stop drafting when the draft model's largest probability is below this; 0 never stops",
        low=0.0,
        high=1.0,
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
    usual = Chain, Block
    takes = "draft_length", "draft"

    draft_length: int = DRAFT_LENGTH


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
    usual = Paths, KSeq
    takes = "drafts", "draft_length"


@dataclass(frozen=True)
class SpecInfer(Combination):
    name = "specinfer"
    title = "SpecInfer"
    paper, section = "Miao et al. 2023 (SpecInfer)", "multi-step speculative sampling"
    summary = (
        "A tree of drafts, verified in one pass; the children of a token are tried one after "
        "another."
    )
    usual = Tree, MultiRound
    takes = ("expansion",)


@dataclass(frozen=True)
class MCSS(SpecInfer):
    name = "mcss"
    title = "MCSS"
    stands_for = "multi-candidate speculative sampling"
    paper, section = "Yang et al. 2024 (MCSD)", "without replacement"
    summary = "SpecInfer's tree with children that all differ, so that no token is tried twice."
    usual = Distinct, MultiRound


@dataclass(frozen=True)
class Match(Combination):
    name = "match"
    title = "Match"
    paper, section = "Hannun 2024 (mlx-lm)", "speculative_generate_step"
    summary = (
        "Draws the large model's token first and keeps the guess that equals it: exact for any "
        "guess, without the small model's probabilities."
    )
    usual = Chain, MatchRule
    takes = "draft_length", "draft"


@dataclass(frozen=True)
class TraversalVerification(Combination):
    name = "traversal"
    title = "Traversal verification"
    paper, section = "Weng et al. 2025 (traversal verification)", "abstract"
    summary = (
        "Judges a tree of drafts from its leaves to its root, so that a late fit makes up for an "
        "early doubt: exact, and more of the tree is kept."
    )
    usual = Tree, Traversal
    takes = "expansion", "draft"


@dataclass(frozen=True)
class MultiPathBlock(Combination):
    name = "multipath"
    title = "Multi-path block"
    paper, section = "Thomas and Pal 2026 (multi-path block verification)", "abstract"
    summary = (
        "Draws several drafts, takes the one that the large model likes best and judges it as a "
        "whole: exact, because it knows how the best was chosen."
    )
    usual = Paths, MultiPath
    takes = "drafts", "draft_length", "draft"


@dataclass(frozen=True)
class BestFirstTrees(Combination):
    name = "best_first"
    title = "Best-first trees"
    paper, section = "Li et al. 2024 (EAGLE-2); Wang et al. 2024 (OPT-Tree)", "4; 3"
    summary = (
        "Spends a budget of guesses on the likeliest paths: wide where the small model doubts, "
        "deep where it is sure."
    )
    usual = copies.BestFirst, MatchRule
    takes = "nodes", "depth", "by"


@dataclass(frozen=True)
class PromptLookup(Combination):
    name = "lookup"
    title = "Prompt lookup"
    paper, section = "Yang et al. 2023 (LLMA); Saxena 2023 (prompt lookup)", "EMS-SD 4.1"
    summary = (
        "Copies its drafts from the prompt, the output or reference documents: no draft model at "
        "all."
    )
    usual = copies.Copied, Tokenwise
    takes = "match", "copy", "references", "prefer", "lenience", "rule"


@dataclass(frozen=True)
class NGramDrafts(Combination):
    name = "ngram"
    title = "N-gram drafts"
    paper, section = "Leviathan et al. 2023", "3.6"
    summary = (
        "Drafts from counts of words and pairs seen so far: no draft model, at almost no cost."
    )
    usual = copies.Counted, Tokenwise
    takes = "order", "draft_length", "smoothing", "references", "lenience", "rule"


@dataclass(frozen=True)
class SuffixDecoding(Combination):
    name = "suffix"
    title = "Suffix decoding"
    paper, section = "Oliaro et al. 2024 (SuffixDecoding)", "3"
    summary = (
        "Looks up the longest run of last tokens that it has seen, and drafts what most often "
        "followed it: longer drafts after longer runs."
    )
    usual = copies.Suffix, MatchRule
    takes = "match", "copy", "factor", "least", "shape", "references", "rule"


@dataclass(frozen=True)
class TokenRecycling(Combination):
    name = "recycling"
    title = "Token recycling"
    paper, section = "Luo et al. 2024 (Token Recycling)", "3"
    summary = (
        "Keeps what the large model found likely after each token, refused guesses included, and "
        "drafts a tree of it."
    )
    usual = copies.Recycled, MatchRule
    takes = "nodes", "depth", "width", "references"


@dataclass(frozen=True)
class Typical(Combination):
    name = "typical"
    title = "Typical acceptance"
    paper, section = "Cai et al. 2024 (Medusa)", "typical acceptance"
    summary = (
        "Keeps a draft token that the large model finds likely enough for how sure it is: fast, "
        "not exact."
    )
    usual = Chain, lossy.TypicalRule
    takes = "draft_length", "epsilon", "delta", "draft"

    draft_length: int = DRAFT_LENGTH


@dataclass(frozen=True)
class BiLD(Combination):
    name = "bild"
    title = "BiLD"
    stands_for = "big little decoder"
    paper, section = "Kim et al. 2023 (BiLD)", "fallback and rollback policies"
    summary = (
        "The small model writes while it is sure; the large one takes over when it hesitates, and "
        "undoes its mistakes."
    )

    draft_length: int = setting(10, "most draft tokens per round (gamma)", low=1, high=64)
    fallback: float = setting(
        0.9,
        "stop drafting when the draft model's largest probability is below this; above 1: at once",
        low=0.0,
        high=2.0,
    )
    rollback: float = shared(lossy.RollbackRule, "rollback")

    @property
    def parts(self) -> Parts:
        return Chain(self.draft_length, self.fallback), lossy.RollbackRule(self.rollback)


@dataclass(frozen=True)
class SpeculativeCascade(Combination):
    name = "cascade"
    title = "Cascade"
    paper, section = "Narasimhan et al. 2024 (speculative cascades)", "abstract"
    summary = (
        "Lets the small model's token stand wherever the large one finds it good enough: more is "
        "kept, and the text is that of a stated mixture of both."
    )
    usual = Chain, lossy.Cascade
    takes = "draft_length", "alpha", "defer"

    draft_length: int = DRAFT_LENGTH


@dataclass(frozen=True)
class SpeculativeEnsemble(Combination):
    name = "ensemble"
    title = "Ensemble"
    paper, section = "Fu et al. 2025 (speculative ensemble)", "abstract"
    summary = "Samples from the weighted mean of both models, at the speed of drafting."
    usual = Chain, lossy.Ensemble
    takes = "draft_length", "weight"

    draft_length: int = DRAFT_LENGTH


@dataclass(frozen=True)
class FLy(Combination):
    name = "fly"
    title = "FLy"
    stands_for = "loosely speculative decoding"
    paper, section = "Li et al. 2025 (FLy)", "abstract"
    summary = (
        "Keeps a refused guess if the large model is unsure there and accepts what follows it: "
        "longer drafts survive, not exact."
    )
    usual = Chain, lossy.FLyRule
    takes = "draft_length", "threshold", "window", "draft"

    draft_length: int = setting(10, "draft tokens per round (gamma)", low=2, high=64)
