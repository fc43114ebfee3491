"""Token recycling: drafts from what the target said after the same token before.

Source:
    Luo et al. 2024 (Token Recycling, arXiv 2408.08696), section 3.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from decoders.methods.modelless import Reader
from decoders.methods.sources import Draft, Drafting, Leaf, Offered, best_first, planted
from decoders.methods.trees import Chosen, depth, nodes
from decoders.reading import Reading
from decoders.request import Ask, Request
from decoders.settings import setting
from decoders.shapes import TokenId

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
        request: the request being decoded
        source: the settings
    """

    def __init__(self, request: Request, source: "Recycled"):
        self.source = source
        self.said: dict[TokenId, list[TokenId]] = {}
        self.seen: dict[TokenId, list[TokenId]] = {}
        super().__init__(request.references)

    def read(self, text: list[TokenId], tokens: Iterable[TokenId]) -> None:
        for token in tokens:
            if text:
                known = self.seen.get(text[-1], [])
                first = [token, *(x for x in known if x != token)]
                self.seen[text[-1]] = first[: self.source.width]
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
        said, seen = self.said, self.seen
        return [
            zip(said.get(leaf.token) or seen.get(leaf.token, []), CHANCES, strict=False)
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
