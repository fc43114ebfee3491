"""Small trees, each judged by one of our rules: choices of the page of rules."""

from collections.abc import Callable
from dataclasses import dataclass

from decoders import Method, catalog


@dataclass(frozen=True)
class Tree:
    """A decoder of small trees.

    Attributes:
        title: its name and what its tree is
        make: makes it for the children of every layer
        last: children of each node of a second layer
        distinct: whether the children of a node differ
    """

    title: str
    make: Callable[[tuple[int, ...]], Method]
    last: int = 2
    distinct: bool = False

    def shape(self, layers: int) -> tuple[int, ...]:
        return (2, self.last)[:layers]


def _text(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


INDEPENDENT, DIFFERENT = "a tree, children drawn independently", "a tree, children that differ"
TREES = {
    "specinfer": Tree(
        f"SpecInfer: {INDEPENDENT}", lambda shape: catalog["specinfer"](expansion=shape)
    ),
    "mcss": Tree(
        f"MCSS: {DIFFERENT}", lambda shape: catalog["mcss"](expansion=shape), distinct=True
    ),
    "traversal_tree": Tree(
        f"Traversal verification: {INDEPENDENT}",
        lambda shape: catalog["traversal"](expansion=shape),
    ),
    "traversal_distinct": Tree(
        f"Traversal verification: {DIFFERENT}",
        lambda shape: catalog["traversal"](expansion=shape, draft="distinct"),
        distinct=True,
    ),
    "match_tree": Tree(
        f"Match: {INDEPENDENT}",
        lambda shape: catalog["match"](draft=f"tree(expansion={_text(shape)})"),
    ),
    "match_distinct": Tree(
        f"Match: {DIFFERENT}",
        lambda shape: catalog["match"](draft=f"distinct(expansion={_text(shape)})"),
        distinct=True,
    ),
    "kseq_tree": Tree(
        f"K-SEQ, SpecTr’s rule: {INDEPENDENT}",
        lambda shape: catalog["speculative"](rule="kseq", draft=f"tree(expansion={_text(shape)})"),
    ),
    "multipath": Tree(
        "Multi-path block: two chains, drawn independently",
        lambda shape: catalog["multipath"](drafts=2, draft_length=len(shape)),
        last=1,
    ),
}
