"""The result of every draft source: draws in the tree, with the distributions they came from."""

from dataclasses import dataclass, field

from decoders.distribution import Distribution
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
            entry has one certain child (a point mass), as copied text has.
    """

    root: NodeId
    draws: list[Draw] = field(default_factory=list)
    q: dict[NodeId, Distribution] = field(default_factory=dict)

    @property
    def nodes(self) -> list[NodeId]:
        """The nodes whose target logits a rule needs: the root and every draw, without repeats."""
        return list(dict.fromkeys([self.root, *(d.node for d in self.draws)]))
