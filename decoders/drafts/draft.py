"""What every draft source hands over: draws in the tree, and the distributions they were really drawn from."""

from dataclasses import dataclass, field

from decoders.shapes import NodeId, Probs, TokenId


@dataclass(frozen=True, slots=True)
class Draw:
    """One drawn token. Equal draws share a node and stay several draws."""

    node: NodeId
    parent: NodeId
    token: TokenId


@dataclass(slots=True)
class Draft:
    """Draws below `root`, in the order drawn; `q` maps a parent to the (V,) distribution its children were drawn from.

    A parent without an entry had a certain child: a point mass, as a look-up proposes.
    """

    root: NodeId
    draws: list[Draw] = field(default_factory=list)
    q: dict[NodeId, Probs] = field(default_factory=dict)

    @property
    def nodes(self) -> list[NodeId]:
        """The nodes whose target logits a rule needs: the root and every draw, each once."""
        return list(dict.fromkeys([self.root, *(d.node for d in self.draws)]))
