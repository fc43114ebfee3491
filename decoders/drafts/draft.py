"""What every draft source returns: draws in the tree, and the distributions that they were really drawn from."""

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
    """Draws below `root`, in the order drawn; `q` maps a parent to the distribution its children were drawn from.

    A parent without an entry has one certain child (a point mass), as copied text has.
    """

    root: NodeId
    draws: list[Draw] = field(default_factory=list)
    q: dict[NodeId, Distribution] = field(default_factory=dict)

    @property
    def nodes(self) -> list[NodeId]:
        """The nodes whose target logits a rule needs: the root and every draw, without repeats."""
        return list(dict.fromkeys([self.root, *(d.node for d in self.draws)]))
