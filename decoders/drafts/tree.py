"""A tree of draws: a chain, several chains or an expansion."""

from collections.abc import Callable, Generator, Sequence

from decoders.distribution import Distribution
from decoders.drafts.draft import Draft, Draw
from decoders.errors import InputError
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.sampling import RandomSource
from decoders.shapes import NodeId, TokenId

Predict = Callable[
    [Request, list[NodeId]], Generator[Ask, list[Reading], list[Distribution] | None]
]
Sampler = Callable[[RandomSource, Distribution, int], list[TokenId]]
LARGEST_TREE = 512


def draft_model(
    request: Request, nodes: list[NodeId]
) -> Generator[Ask, list[Reading], list[Distribution]]:
    """The warped distributions of the draft model after these nodes."""
    return [request.warp(reading) for reading in (yield request.ask("draft", nodes))]


def confident(
    request: Request, nodes: list[NodeId], least: float
) -> Generator[Ask, list[Reading], list[Distribution] | None]:
    """The warped distributions of the draft model, or None if it hesitates.

    It hesitates if its largest raw probability is below `least` at every node. This depends on the
    path so far and not on the token that would be drawn, so a draft that ends here is as exact as
    any.
    """
    readings = yield request.ask("draft", nodes)
    return (
        [request.warp(r) for r in readings] if max(r.highest for r in readings) >= least else None
    )


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
    predict: Predict = draft_model,
    sample: Sampler = with_replacement,
) -> Generator[Ask, list[Reading], Draft]:
    """Grow a draft below the tip, with one draft pass per layer.

    (1, 1, 1) is a chain, (k, 1, 1) are k chains. Equal draws share a node, but each has its own
    children. The tree ends early when the budget is reached, when every branch has ended, or when
    `predict` returns None for a layer.

    Args:
        request: the request being decoded
        expansion: the number of children of every draw, layer by layer
        predict: the distributions that the children of these nodes are drawn from
        sample: draws the children of one node
    """
    draft = Draft(request.tip)
    layer = [draft.root]
    for children in expansion[: request.left - 1]:
        nodes = list(dict.fromkeys(layer))
        q = yield from predict(request, nodes)
        if q is None:
            break
        draft.q.update(zip(nodes, q, strict=True))
        grown = len(draft.draws)
        for node in layer:
            tokens = sample(request.source, draft.q[node], children)
            draft.draws += [Draw(request.tree.add(node, token), node, token) for token in tokens]
        layer = [d.node for d in draft.draws[grown:] if d.token not in request.end_tokens]
        if not layer:
            break
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
