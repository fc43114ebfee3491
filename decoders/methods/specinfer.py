"""SpecInfer: a tree of drafts, verified in one pass."""

from dataclasses import dataclass
from functools import partial

from decoders.drafts.tree import tree, tree_size
from decoders.errors import InputError
from decoders.inputs import is_whole
from decoders.methods.speculative import speculate
from decoders.request import Request
from decoders.rules.multiround import MultiRoundRule
from decoders.settings import Decoding, Method, setting


def as_expansion(name: str, expansion: object) -> tuple[int, ...]:
    """The children of each layer, from a sequence of whole numbers or a text such as "3,2,1,1"; InputError for anything else."""
    given = expansion
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        given = [int(part) if part.isdecimal() else part for part in parts]
    if not isinstance(given, (list, tuple)) or not given or not all(is_whole(n) and n >= 1 for n in given):
        raise InputError(f"{name}: expansion must be whole numbers of 1 or more, as 3,2,1,1, not {expansion!r}.")
    expansion = tuple(int(n) for n in given)
    tree_size(name, expansion)
    return expansion


@dataclass(frozen=True)
class SpecInfer(Method):
    name = "specinfer"
    title = "SpecInfer"
    law = "target"
    paper, section = "Miao et al. 2023 (SpecInfer)", "multi-step speculative sampling"
    summary = "A tree of drafts, verified in one pass; the children of a token are tried one after another."
    uses_draft = True

    expansion: tuple[int, ...] = setting(
        (3, 2, 1, 1), "children of each draft token, layer by layer, as 3,2,1,1", read=as_expansion
    )

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 1 + tree_size(self.name, self.expansion)

    def decode(self, request: Request) -> Decoding:
        return speculate(request, partial(tree, expansion=self.expansion), MultiRoundRule())
