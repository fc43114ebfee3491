"""Decoders as combinations of a draft source and a rule.

`speculative(rule="traversal", draft="tree(expansion=3,2)")` has both by name; the other decoders
are combinations that papers have named.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from functools import cached_property, partial
from typing import Any

from decoders.errors import InputError, quoted
from decoders.methods.block import Block, MultiPath, Traversal
from decoders.methods.copies import Copied, Counted, Suffix, SuffixElseHead
from decoders.methods.lossy import Cascade, Ensemble, FLyRule, RollbackRule, TypicalRule
from decoders.methods.rules import KSeq, MatchRule, MultiRound, Parts, Rule, Tokenwise, speculate
from decoders.methods.sources import Chain, Distinct, Headed, Paths, Source, Tree
from decoders.methods.trees import BestFirst, Recycled
from decoders.request import Request
from decoders.settings import Decoding, Law, Method, claim, nearest, setting

Part = Rule | Source

_RULES: tuple[type[Rule], ...] = (
    Tokenwise, MatchRule, Block, Traversal, KSeq, MultiRound, MultiPath, TypicalRule,
    RollbackRule, Cascade, Ensemble, FLyRule,
)  # fmt: skip
_SOURCES: tuple[type[Source], ...] = (
    Chain, Headed, Paths, Tree, Distinct, BestFirst, Counted, Copied, Suffix, SuffixElseHead,
    Recycled,
)  # fmt: skip
RULES: Mapping[str, type[Rule]] = {rule.name: rule for rule in _RULES}
SOURCES: Mapping[str, type[Source]] = {source.name: source for source in _SOURCES}


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
    found = (
        re.fullmatch(r"\s*([\w, ]*\w)\s*(?:\((.*)\))?\s*", text) if isinstance(text, str) else None
    )
    what = "draft" if parts is SOURCES else "rule"
    if not found or found[1] not in parts:
        word = found[1] if found else ""
        raise InputError(f"{owner}: there is no {what} {quoted(text)}: {nearest(word, parts)}")
    name, inside = found.groups()
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


def _kept(parts: Mapping[str, type[Any]], owner: str, text: object) -> object:
    part(parts, owner, text)
    return text


def rule(*sources: type[Source], default: type[Rule] = Tokenwise) -> Any:
    """The setting of a decoder's rule: those that fit these sources, or all."""
    fit = [r.name for r in _RULES if all(map(r.fits, sources))]
    return setting(default.name, "how drafts are judged", choices=fit, read=partial(_kept, RULES))


def draft(default: type[Source], rule: type[Rule] | None = None) -> Any:
    """The setting of a decoder's drafts: those that fit the rule, or all."""
    fit = [s.name for s in _SOURCES if rule is None or rule.fits(s)]
    return setting(
        default.name,
        "where drafts come from: the draft model, a head of the target (head), counts (ngram), "
        "copies (lookup, suffix; a head where nothing is found) or what the target said before "
        "(recycling)",
        choices=fit,
        read=partial(_kept, SOURCES),
    )


class Combination(Method, ABC):
    """A decoder made of a source and a rule.

    Raises:
        InputError: also if the two do not fit
    """

    @property
    @abstractmethod
    def parts(self) -> Parts:
        """The source and the rule that its settings say; requests share them."""

    @cached_property
    def _parts(self) -> Parts:
        """`parts`, made once: settings stay what they are."""
        return self.parts

    def __post_init__(self) -> None:
        super().__post_init__()
        source, rule = self._parts
        if not rule.fits(source):
            fit = [s.name for s in _SOURCES if rule.fits(s)]
            raise InputError(
                f"{self.name}: the rule {rule.name} cannot judge the draft {source.name}, "
                f"{source.kind}; take the draft {' or '.join(fit)}, or the rule "
                f"{' or '.join(r.name for r in _RULES if r.fits(source))}."
            )

        if source.longest <= rule.window:
            raise InputError(
                f"{self.name}: the rule {rule.name} needs drafts longer than its window of "
                f"{rule.window}; lengthen the draft or shorten the window."
            )

    def chosen(self, own: Any) -> Any:
        """The part that the setting `rule` or `draft` names, with the settings that it shares.

        Args:
            own: the part that this decoder's own settings are for
        """
        parts, key = (RULES, "rule") if isinstance(own, Rule) else (SOURCES, "draft")
        text = getattr(self, key)
        if text == own.name:
            return own
        other, ours = part(parts, self.name, text), {f.name: f for f in fields(self)}
        theirs = {f.name for f in fields(other)}
        given = {}
        for name in (f.name for f in fields(own) if f.name in ours):
            if (value := getattr(self, name)) != ours[name].default:
                given[name] = value
                if name not in theirs:
                    raise InputError(
                        f"{self.name}: {name} is no setting of {key}={quoted(text)}, which has "
                        f"{', '.join(sorted(theirs)) or 'none'}; leave it out."
                    )
        return part(parts, self.name, text, **given)

    @claim
    def law(self) -> Law | None:
        source, rule = self._parts
        return rule.law if source.kind in rule.judges else None

    @claim
    def uses_draft(self) -> bool:
        return self._parts[0].uses_draft

    @claim
    def uses_head(self) -> bool:
        return self._parts[0].uses_head

    @property
    def branches(self) -> tuple[int, int]:
        size = self._parts[0].size
        return 1, 1 + size if size else 0

    def decode(self, request: Request) -> Decoding:
        source, rule = self._parts
        return speculate(request, source.start(request), rule)
