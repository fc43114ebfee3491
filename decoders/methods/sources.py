"""Where drafts come from: sources, and the drafts in a request's tree that they make.

A draft is a chain, copied or drawn, several chains, or a tree, drawn or chosen. A source and a rule
that fit make a decoder, see `decoders.methods.named`.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192); Sun et al. 2023 (SpecTr, arXiv 2310.15141); Miao et
    al. 2023 (SpecInfer, arXiv 2305.09781); Yang et al. 2024 (MCSD, arXiv 2401.06706).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from decoders.distribution import Distribution
from decoders.errors import InputError, is_whole, quoted
from decoders.methods.budget import LONGEST, AutoLength
from decoders.reading import Reading
from decoders.request import Ask, Doubt, Draw, RandomSource, Request
from decoders.settings import Checked, setting
from decoders.shapes import NodeId, TokenId


@dataclass(slots=True)
class Draft:
    """The draws of one round.

    Attributes:
        root: the node that all draws are below
        draws: the draws, in the order drawn
        q: from a parent to the distribution that its children were drawn from. A parent without an
            entry has one certain child (a point mass), as copied text has, or chosen children.
        distinct: whether children were drawn without replacement
    """

    root: NodeId
    draws: list[Draw] = field(default_factory=list)
    q: dict[NodeId, Distribution] = field(default_factory=dict)
    distinct: bool = False

    @property
    def nodes(self) -> list[NodeId]:
        """The nodes whose target logits a rule needs: the root and every draw, without repeats."""
        return list(dict.fromkeys([self.root, *(d.node for d in self.draws)]))


Predict = Callable[[Request, list[NodeId]], Generator[Ask, list[Reading], list[Distribution]]]
Sampler = Callable[[RandomSource, Distribution, int], list[TokenId]]
LARGEST_TREE = 512


def certain(request: Request, tokens: Sequence[TokenId]) -> Draft:
    """A chain of these tokens below the tip, up to an end token or the length left to the answer.

    The tokens are certain, drawn from no distribution. So a rule tests each against a point mass,
    which is exact wherever they come from.
    """
    draft = Draft(request.tip)
    node = draft.root
    for token in tokens[: max(0, request.left - 1)]:
        child = request.tree.add(node, token)
        draft.draws.append(Draw(child, node, token))
        if token in request.end_tokens:
            break
        node = child
    return draft


def chain(
    request: Request,
    length: int,
    until: Doubt | None = None,
    model: str = "draft",
) -> Generator[Ask, list[Draw], Draft]:
    """At most `length` tokens of a model below the tip, each drawn after the one before.

    Args:
        length: most tokens
        until: ends the chain before the first token for which this is true of the reading that the
            token would be drawn from
        model: who drafts, "draft" or "head"

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, first half.
    """
    draft = Draft(request.tip)
    steps = min(length, request.left - 1)
    for draw in (yield request.draw(model, request.tip, steps, until)) if steps else ():
        assert draw.q  # of a chain's answer
        draft.q[draw.parent] = draw.q
        draft.draws.append(draw)
    return draft


def said(
    request: Request, nodes: list[NodeId], model: str = "draft"
) -> Generator[Ask, list[Reading], list[Distribution]]:
    """The warped distributions of a model after these nodes."""
    readings = yield request.ask(model, nodes)
    return [request.warp(r) for r in readings]


def with_replacement(source: RandomSource, q: Distribution, count: int) -> list[TokenId]:
    """`count` children, drawn i.i.d. from q: for SpecTr and SpecInfer."""
    return source.draw(q, count)


def without_replacement(source: RandomSource, q: Distribution, count: int) -> list[TokenId]:
    """At most `count` different children, each drawn from q without those before it: for MCSS."""
    tokens: list[TokenId] = []
    while len(tokens) < count and q.total > 0:
        tokens += source.draw(q)
        q = q.without(tokens[-1])
    return tokens


def tree(
    request: Request,
    expansion: Sequence[int],
    predict: Predict = said,
    sample: Sampler = with_replacement,
) -> Generator[Ask, list[Reading], Draft]:
    """Grow a draft below the tip, with one draft pass per layer.

    (1, 1, 1) is a chain, (k, 1, 1) are k chains. Equal draws share a node, but each has its own
    children. The tree ends early when the budget is reached or every branch has ended.

    Args:
        expansion: the number of children of every draw, layer by layer
        predict: the distributions that the children of these nodes are drawn from
        sample: draws the children of one node
    """
    draft = Draft(request.tip, distinct=sample is without_replacement)
    layer = [draft.root]
    for children in expansion[: request.left - 1]:
        nodes = list(dict.fromkeys(layer))
        q = yield from predict(request, nodes)
        draft.q.update(zip(nodes, q, strict=True))
        grown = len(draft.draws)
        for node in layer:
            tokens = sample(request.source, draft.q[node], children)
            draft.draws += [Draw(request.tree.add(node, token), node, token) for token in tokens]
        layer = [d.node for d in draft.draws[grown:] if d.token not in request.end_tokens]
        if not layer:
            break
    return draft


@dataclass(slots=True)
class Leaf:
    """A token that may join a tree of chosen tokens.

    Attributes:
        token: the token; of the root, the last one of the text
        chance: the product of the chances on its path
        parent: the leaf before it; None for the root
        level: how deep it is; the root is at 0
        at: whatever the offer keeps of it
    """

    token: TokenId
    chance: float = 1.0
    parent: "Leaf | None" = None
    level: int = 0
    at: Any = None


# For each leaf, the tokens that may follow it and the chance of each, in falling order.
Offered = Iterable[tuple[TokenId, float]]


def best_first(
    request: Request,
    size: int,
    depth: int,
    offer: Callable[[list[Leaf]], Generator[Ask, Any, Iterable[Offered]]],
    least: float = 0.0,
) -> Generator[Ask, Any, list[Leaf]]:
    """The `size` tokens with the largest product of chances on their path, parents first.

    These are the tokens that a heap gives of which the likeliest is popped and replaced by its
    children, but a layer is one pass. The choice depends on no draw, so only the rule `match` may
    judge it.

    Args:
        size: most tokens
        depth: most layers
        offer: says what may follow each leaf of a layer
        least: the least product

    Source:
        Li et al. 2024 (EAGLE-2, arXiv 2406.16858); Wang et al. 2024 (OPT-Tree, arXiv 2406.17276).
    """
    best: list[Leaf] = []
    layer = [Leaf(request.tree.tokens[request.tip])]
    for level in range(1, min(depth, request.left - 1) + 1):
        grown = []
        floor = best[-1].chance if len(best) == size else 0.0
        for leaf, offered in zip(layer, (yield from offer(layer)), strict=True):
            for token, chance in offered:
                product = leaf.chance * min(1.0, chance)
                if product <= floor or product < least:
                    break
                grown.append(Leaf(token, product, leaf, level))
        # Equals keep their order, parents first.
        best = sorted([*best, *grown], key=attrgetter("chance"), reverse=True)[:size]
        layer = [x for x in best if x.level == level and x.token not in request.end_tokens]
        if not layer:
            break
    return best


def planted(request: Request, leaves: Sequence[Leaf]) -> Draft:
    """A draft of these leaves, parents first, below the tip."""
    draft, nodes = Draft(request.tip), dict[int, NodeId]()
    for leaf in leaves:
        parent = nodes.get(id(leaf.parent), draft.root)
        nodes[id(leaf)] = node = request.tree.add(parent, leaf.token)
        draft.draws.append(Draw(node, parent, leaf.token))
    return draft


def tree_size(name: str, expansion: tuple[int, ...]) -> int:
    """The number of draft tokens per round. Raises InputError for more than LARGEST_TREE."""
    size, layer = 0, 1
    for children in expansion:
        layer *= children
        size += layer
        if size > LARGEST_TREE:
            raise InputError(
                f"{name}: more than {LARGEST_TREE} draft tokens per round are too many; take fewer "
                "children or layers."
            )
    return size


class Kind(StrEnum):
    """What a source drafts, as far as rules differ by it."""

    CERTAIN = "a chain of tokens without probabilities"
    CHAIN = "a drawn chain"
    HEADED = "a chain drawn by a head"
    EITHER = "a chain of tokens without probabilities, or one drawn by a head"
    COUNTED = "a chain drawn from counts"
    PATHS = "several chains, drawn independently"
    TREE = "a tree of independent draws"
    DISTINCT = "a tree of draws without replacement"
    CHOSEN = "a tree of chosen tokens"


CHAINS = frozenset({Kind.CERTAIN, Kind.CHAIN, Kind.HEADED, Kind.EITHER, Kind.COUNTED})
DRAWN = frozenset({Kind.CHAIN, Kind.HEADED, Kind.COUNTED, Kind.PATHS, Kind.TREE, Kind.DISTINCT})


class Drafting(NamedTuple):
    """A source at work for one request.

    Attributes:
        propose: returns the draft of a round
        predict: the distributions that it draws from; None if it draws nothing
        learn: is given the readings of the target at the nodes of each draft
        likeliest: how many of the likeliest tokens it looks at in those
        pause: how many more empty drafts follow an empty one; None if nobody knows
    """

    propose: Callable[[Request], Generator[Ask, Any, Draft]]
    predict: Predict | None = None
    learn: Callable[[Draft, Sequence[Reading]], None] | None = None
    likeliest: int = 0
    pause: Callable[[], int] | None = None


class Source(Checked, ABC):
    """Where drafts come from: a frozen dataclass of settings.

    Attributes:
        kind: what it drafts
        uses_draft: whether it needs a draft model
        uses_head: whether it needs a head of the target
        size: most draft tokens of a round, if they branch; 0 for a chain
        longest: most draft tokens of a chain; infinite of other drafts, and where nobody knows
    """

    kind: ClassVar[Kind]
    uses_draft: ClassVar[bool] = False
    uses_head: ClassVar[bool] = False

    @property
    def drafter(self) -> str:
        """The model that drafts, if one does."""
        return "head" if self.uses_head else "draft"

    @property
    def size(self) -> int:
        return 0

    @property
    def longest(self) -> float:
        return math.inf

    @abstractmethod
    def start(self, request: Request) -> Drafting:
        """Begin to draft for a request."""


DRAFT_LENGTH = setting(4, "draft tokens per round (gamma)", low=1, high=64)
ETA = 0.2  # of the bound on acceptance, as the authors have it


@dataclass(frozen=True)
class Chain(Source):
    """Tokens of the draft model, each drawn after the one before."""

    name = "model"
    kind = Kind.CHAIN
    uses_draft = True

    draft_length: int | str = setting(
        4,
        "draft tokens per round; 'auto' takes what is quickest by the clock for all prompts "
        "together, perhaps none: the law stays, but not a seed's tokens",
        low=1,
        high=64,
        choices=("auto",),
    )
    confidence: float = setting(
        0.0,
        "stop drafting when the draft model's largest probability is below this; 0 never stops",
        low=0.0,
        high=2.0,
    )
    gate: float = setting(
        0.0,
        f"stop drafting when 1 - sqrt({ETA} H) is below this, H being the entropy (nats) of the "
        "draft model's next token; 0 never stops",
        low=0.0,
        high=1.0,
    )

    @property
    def longest(self) -> int:
        return LONGEST if isinstance(self.draft_length, str) else self.draft_length

    def start(self, request: Request) -> Drafting:
        fixed, predict = self.draft_length, partial(said, model=self.drafter)
        until = self.doubt if self.confidence or self.gate else None
        if not isinstance(fixed, str):
            return Drafting(lambda r: chain(r, fixed, until, self.drafter), predict)
        auto = AutoLength(request)
        return Drafting(
            lambda r: chain(r, auto(), until, self.drafter),
            predict,
            pause=lambda: auto.left,
        )

    @property
    def doubt(self) -> Doubt:
        """When a draft ends early, at temperature 0 too.

        Source:
            Agrawal et al. 2024 (AdaEDL, arXiv 2410.18351): the gate, solved for the entropy.
        """
        return Doubt(self.confidence, (1 - self.gate) ** 2 / ETA if self.gate else math.inf)


@dataclass(frozen=True)
class Headed(Chain):
    """Tokens of a head, which reads the target's hidden states.

    Source:
        Li et al. 2025 (EAGLE-3, arXiv 2503.01840).
    """

    name = "head"
    kind = Kind.HEADED
    uses_draft = False
    uses_head = True


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


@dataclass(frozen=True)
class Tree(Source):
    """A tree of the draft model's tokens, children drawn independently."""

    name = "tree"
    kind = Kind.TREE
    uses_draft = True

    expansion: tuple[int, ...] = setting(
        (3, 2, 1, 1), "children of each draft token, layer by layer, as 3,2,1,1", read=as_expansion
    )

    @property
    def size(self) -> int:
        return tree_size(self.name, self.expansion)

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

    drafts: int = setting(4, "drafts per round, i.i.d. (k)", low=1, high=64)
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

    def start(self, request: Request) -> Drafting:
        return Drafting(partial(tree, expansion=self.expansion), said)
