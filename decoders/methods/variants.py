"""Other rules that judge a draft node by node, and drafts with several chains or branches.

Source:
    Sun et al. 2023 (SpecTr, arXiv 2310.15141), K-SEQ; Miao et al. 2023 (SpecInfer, arXiv
    2305.09781), multi-step speculative sampling; Yang et al. 2024 (MCSD, arXiv 2401.06706), without
    replacement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from decoders.distribution import point_mass
from decoders.drafts import Draft, said, tree, tree_size, without_replacement
from decoders.errors import InputError, is_whole, quoted
from decoders.methods.parts import DRAWN, Drafting, Kind, Rule, Source, Verdict
from decoders.methods.speculative import DRAFT_LENGTH, walk
from decoders.randomness import RandomSource
from decoders.reading import Reading
from decoders.request import Request
from decoders.rules import KSeqRule, MultiRoundRule, Node, NodeRule, Pick
from decoders.settings import setting


def as_expansion(name: str, expansion: object) -> tuple[int, ...]:
    """The number of children of each layer.

    Args:
        name: the decoder's name, for messages
        expansion: whole numbers, or a text such as "3,2,1,1"

    Raises:
        InputError: for anything else, and for a tree that is too large
    """
    numbers = expansion
    if isinstance(numbers, str):
        parts = [part.strip() for part in numbers.split(",")]
        # A number with more digits is too large whatever they are.
        numbers = [int(part[:20]) if part.isdecimal() else part for part in parts]
    if (
        not isinstance(numbers, (list, tuple))
        or not numbers
        or not all(is_whole(n) and n >= 1 for n in numbers)
    ):
        raise InputError(
            f"{name}: expansion must be whole numbers of 1 or more, as 3,2,1,1, not "
            f"{quoted(expansion)}."
        )
    expansion = tuple(int(n) for n in numbers)
    tree_size(name, expansion)
    return expansion


DRAFTS = setting(4, "drafts per round, i.i.d. (k)", low=1, high=64)
EXPANSION = setting(
    (3, 2, 1, 1), "children of each draft token, layer by layer, as 3,2,1,1", read=as_expansion
)


@dataclass(frozen=True)
class Tree(Source):
    """A tree of the draft model's tokens, children drawn independently."""

    name = "tree"
    kind = Kind.TREE
    uses_draft = True

    expansion: tuple[int, ...] = EXPANSION

    @property
    def size(self) -> int:
        return tree_size(self.name, self.expansion)

    @property
    def longest(self) -> int:
        return len(self.expansion)

    def start(self, request: Request) -> Drafting:
        return Drafting(partial(tree, expansion=self.expansion), said)


@dataclass(frozen=True)
class Distinct(Tree):
    """A tree of the draft model's tokens, children that all differ."""

    name = "distinct"
    kind = Kind.DISTINCT

    def start(self, request: Request) -> Drafting:
        propose = partial(tree, expansion=self.expansion, sample=without_replacement)
        return Drafting(propose, said)


@dataclass(frozen=True)
class Paths(Source):
    """Several chains of the draft model, drawn independently."""

    name = "paths"
    kind = Kind.PATHS
    uses_draft = True

    drafts: int = DRAFTS
    draft_length: int = DRAFT_LENGTH

    def __post_init__(self) -> None:
        super().__post_init__()
        tree_size(self.name, self.expansion)

    @property
    def expansion(self) -> tuple[int, ...]:
        return (self.drafts,) + (1,) * (self.draft_length - 1)

    @property
    def size(self) -> int:
        return tree_size(self.name, self.expansion)

    @property
    def longest(self) -> int:
        return self.draft_length

    def start(self, request: Request) -> Drafting:
        return Drafting(partial(tree, expansion=self.expansion), said)


class NodeWise(Rule, NodeRule):
    """A rule that judges the children of one node after another."""

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        return walk(request, draft, readings, self)


@dataclass(frozen=True)
class MatchRule(NodeWise):
    """Draw y from p: a child that is y is kept, and y is the correction if none is.

    It needs no q, so it is exact for any draft that does not depend on y, chosen trees included;
    a drawn token is kept with chance sum p q instead of the most possible, 1 - TV.
    """

    name = "match"
    judges = frozenset(Kind)

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, tokens, _ = node
        (y,) = source.draw(p)
        kept = y in tokens
        tested = tokens[: tokens.index(y) + 1] if kept else tokens
        tests: list[tuple[float, float | None, float | None, float | None]] = [
            (p[x], None if q is None else q[x], p[x], None) for x in tested
        ]
        return Pick(tests, kept, rest=point_mass(y))


@dataclass(frozen=True)
class KSeq(Rule):
    """K-SEQ, for drafts drawn independently."""

    name = "kseq"
    judges = DRAWN - {Kind.DISTINCT}

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        return walk(request, draft, readings, KSeqRule())


@dataclass(frozen=True)
class MultiRound(Rule):
    """Multi-round rejection, for children drawn with or without replacement."""

    name = "multiround"
    judges = DRAWN

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        return walk(request, draft, readings, MultiRoundRule(not draft.distinct))
