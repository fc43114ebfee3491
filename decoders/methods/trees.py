"""Trees of chosen tokens: the likeliest paths of a draft model, of counts or of earlier readings.

Source:
    Li et al. 2024 (EAGLE-2, arXiv 2406.16858), section 4; Wang et al. 2024 (OPT-Tree, arXiv
    2406.17276), section 3; Luo et al. 2024 (Token Recycling, arXiv 2408.08696), section 3.
"""

import math
from abc import ABC
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from decoders.methods.copies import NGram, Reader
from decoders.methods.sources import (
    LARGEST_TREE,
    Draft,
    Drafting,
    Kind,
    Leaf,
    Offered,
    Source,
    best_first,
    planted,
)
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.settings import claim, setting
from decoders.shapes import TokenId


def nodes(default: int) -> Any:
    return setting(
        default, "most draft tokens per round, in all branches", low=1, high=LARGEST_TREE
    )


def depth(default: int) -> Any:
    return setting(default, "most draft tokens on a path", low=1, high=64)


NODES, DEPTH = nodes(16), depth(6)
BY = setting(
    "model",
    "whose probabilities choose the tokens: the draft model's, a head's, or those of counts "
    "(ngram)",
    choices=("model", "head", "ngram"),
)


@dataclass(frozen=True)
class Chosen(Source, ABC):
    """A tree of the tokens that are likeliest by some measure; only the rule `match` judges it."""

    kind = Kind.CHOSEN

    nodes: int = NODES
    depth: int = DEPTH

    @property
    def size(self) -> int:
        return self.nodes

    @property
    def longest(self) -> int:
        return self.depth


@dataclass(frozen=True)
class BestFirst(Chosen):
    """The likeliest paths of the draft model, of a head, or of counts.

    Raw probabilities measure them, so that a tree branches at temperature 0 too.
    """

    name = "best_first"

    by: str = BY

    @claim
    def uses_draft(self) -> bool:
        return self.by == "model"

    @claim
    def uses_head(self) -> bool:
        return self.by == "head"

    @property
    def size(self) -> int:
        """Nodes that later ones push out of the tree have been read by their model, too."""
        return self.nodes * (1 if self.by == "ngram" else self.depth)

    def start(self, request: Request) -> Drafting:
        counts = NGram(request, 1.0, pairs=True) if self.by == "ngram" else None
        return Drafting(partial(self._propose, counts=counts))

    def _propose(self, request: Request, counts: NGram | None) -> Generator[Ask, Any, Draft]:
        def offer(layer: list[Leaf]) -> Generator[Ask, Any, list[Offered]]:
            for leaf in layer:
                leaf.at = request.tree.add(leaf.parent.at, leaf.token) if leaf.parent else root
            nodes = [leaf.at for leaf in layer]
            if counts:
                return [self._likeliest(r) for r in counts.after(request, nodes, self.nodes)]
            readings = yield request.ask(self.drafter, nodes, self.nodes)
            return [self._likeliest(r) for r in readings]

        root = request.tip
        return planted(request, (yield from best_first(request, self.nodes, self.depth, offer)))

    def _likeliest(self, reading: Reading) -> Iterator[tuple[TokenId, float]]:
        total = reading.log_sum
        for token, logit in zip(*reading.likeliest(self.nodes), strict=True):
            yield token, math.exp(logit - total)


# Chances by rank, which shape the tree as if its template were fixed.
CHANCES = tuple(0.6 * 0.4**rank for rank in range(16))

# The paper's tree has 80 nodes; each costs more where a processor reads them, as here.
RECYCLED_NODES, RECYCLED_DEPTH = nodes(4), depth(4)
WIDTH = setting(8, "tokens kept after each token (k)", low=1, high=len(CHANCES))


class Recycler(Reader):
    """Proposes the tokens that were likeliest after the same token when the target last read it.

    After each pass it learns from all nodes of the draft, refused ones too; of several nodes with
    one token, the last counts. Where the target has said nothing yet, it proposes what followed the
    token in the references and the text, the last pair first.

    Args:
        source: the settings
    """

    def __init__(self, request: Request, source: "Recycled"):
        self.source = source
        self.said: dict[TokenId, list[TokenId]] = {}
        self.followers: dict[TokenId, list[TokenId]] = {}
        super().__init__(request.references)

    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        for token in tokens:
            if text:
                known = self.followers.get(text[-1], [])
                first = [token, *(x for x in known if x != token)]
                self.followers[text[-1]] = first[: self.source.width]
            text.append(token)

    def learn(self, draft: Draft, readings: Sequence[Reading]) -> None:
        tokens = [self.text[-1], *(d.token for d in draft.draws)]
        for token, reading in zip(tokens, readings, strict=True):
            self.said[token] = reading.likeliest(self.source.width)[0]

    def propose(self, request: Request) -> Generator[Ask, Any, Draft]:
        self.catch_up(request)
        return planted(
            request,
            (yield from best_first(request, self.source.nodes, self.source.depth, self._offer)),
        )

    def _offer(self, layer: list[Leaf]) -> Generator[Ask, Any, list[Offered]]:
        yield from ()  # asks no model
        said, followers = self.said, self.followers
        return [
            zip(said.get(leaf.token) or followers.get(leaf.token, []), CHANCES, strict=False)
            for leaf in layer
        ]


@dataclass(frozen=True)
class Recycled(Chosen):
    """What the target said after the same token before."""

    name = "recycling"

    nodes: int = RECYCLED_NODES
    depth: int = RECYCLED_DEPTH
    width: int = WIDTH

    def start(self, request: Request) -> Drafting:
        recycler = Recycler(request, self)
        return Drafting(recycler.propose, learn=recycler.learn, likeliest=self.width)
