"""A decoder's question to a model (Ask), and the answer to one for a chain (Drawn)."""

import math
from typing import NamedTuple

from decoders.distribution import Distribution
from decoders.reading import Reading
from decoders.shapes import NodeId, TokenId


class Doubt(NamedTuple):
    """When a chain ends before its next token: where the model's raw probabilities leave it unsure.

    That depends on the reading that the token would be drawn from, and not on the token. So a chain
    that ends in doubt is as exact as any.

    Attributes:
        least: the chain ends if the largest probability is below this
        most: the chain ends if the entropy, in nats, is above this
    """

    least: float = 0.0
    most: float = math.inf

    def __call__(self, reading: Reading) -> bool:
        return bool(self.least and reading.highest < self.least) or (
            self.most < math.inf and reading.entropy > self.most
        )


class Ask(NamedTuple):
    """A decoder's question: what follows these nodes of its tree?

    The answer is a list of readings, one per node in the order asked; for a chain, a list of Drawn.

    Attributes:
        model: "target", "draft" or "head"
        nodes: the nodes asked about
        likeliest: how many of the likeliest tokens the decoder will look at in each reading, beyond
            those that warping leaves
        steps: above 0, a chain: draw at most this many tokens with this model, the first after the
            one node asked about, each of the others after the one before. The chain ends with the
            first token that ends the text.
        until: of a chain, ends it before the first token for which this is true of the reading that
            the token would be drawn from
        piecemeal: of a chain, whether its answer may hold the first tokens alone, at least one: as
            many as the model draws in one call
        features: layers whose hidden states come with each reading, numbered as in transformers'
            `hidden_states`: 0 is the embedding, the last comes after the final norm
    """

    model: str
    nodes: tuple[NodeId, ...]
    likeliest: int = 0
    steps: int = 0
    until: Doubt | None = None
    piecemeal: bool = False
    features: tuple[int, ...] = ()


class Drawn(NamedTuple):
    """A token of a chain.

    Attributes:
        node: its node
        parent: the node before it
        token: its id
        q: the distribution that it was drawn from
        reading: the reading at `parent`
    """

    node: NodeId
    parent: NodeId
    token: TokenId
    q: Distribution
    reading: Reading
