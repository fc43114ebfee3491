"""Random histories of token trees: growing nodes, requested nodes and kept tips."""

import random
from collections.abc import Iterable, Iterator, Sequence

from decoders.shapes import NodeId
from decoders.tree import TokenTree
from tests.models import VOCABULARY

Wants = list[tuple[TokenTree, list[NodeId]]]


def histories(
    trees: Sequence[TokenTree],
    rounds: int,
    rng: random.Random,
    seen: dict[TokenTree, set[NodeId]],
    most: int = 7,
) -> Iterator[Wants]:
    """For each round, the nodes to ask about in each tree, of those not `seen`.

    A tree grows by fewer than `most` nodes, and after the round one or two tips are kept."""
    for _ in range(rounds):
        wants = []
        for tree in trees:
            live = [tree.trunk[-1], *tree.tail]
            for _ in range(rng.randrange(1, most)):
                live.append(tree.add(rng.choice(live[-4:]), rng.randrange(VOCABULARY)))
            nodes = [n for n in dict.fromkeys(live) if n not in seen[tree]]
            if nodes:
                wants.append((tree, rng.sample(nodes, rng.randrange(1, len(nodes) + 1))))
        yield wants
        keep_some(trees, rng)


def keep_some(trees: Iterable[TokenTree], rng: random.Random) -> None:
    for tree in trees:
        live = tree.tail or tree.trunk[-1:]
        tree.keep(rng.sample(live, min(len(live), rng.randrange(1, 3))))
