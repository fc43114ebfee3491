"""Drafts: draws in the request's tree, with the distributions that they came from.

They are chains, copied or drawn, several chains, or trees, drawn or chosen.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from decoders.distribution import Distribution
from decoders.errors import InputError
from decoders.randomness import RandomSource
from decoders.reading import Reading
from decoders.request import Ask, Doubt, Drawn, Request
from decoders.shapes import NodeId, TokenId


@dataclass(frozen=True, slots=True)
class Draw:
    """One drawn token. Equal draws share a node but remain separate draws."""

    node: NodeId
    parent: NodeId
    token: TokenId


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
) -> Generator[Ask, list[Drawn], Draft]:
    """At most `length` tokens of a model below the tip, each drawn after the one before.

    Args:
        request: the request being decoded
        length: most tokens
        until: ends the chain before the first token for which this is true of the reading that the
            token would be drawn from
        model: who drafts, "draft" or "head"

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, first half.
    """
    draft = Draft(request.tip)
    steps = min(length, request.left - 1)
    for drawn in (yield request.draw(model, request.tip, steps, until)) if steps else ():
        draft.draws.append(Draw(drawn.node, drawn.parent, drawn.token))
        draft.q[drawn.parent] = drawn.q
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
        request: the request being decoded
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
Offer = Callable[[list[Leaf]], Generator[Ask, Any, Iterable[Offered]]]


def best_first(
    request: Request, size: int, depth: int, offer: Offer, least: float = 0.0
) -> Generator[Ask, Any, list[Leaf]]:
    """The `size` tokens with the largest product of chances on their path, parents first.

    These are the tokens that a heap gives of which the likeliest is popped and replaced by its
    children, but a layer is one pass. The choice depends on no draw, so only the rule `match` may
    judge it.

    Args:
        request: the request being decoded
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
