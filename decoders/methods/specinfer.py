"""SpecInfer: a tree of drafts, verified in one pass.

Source:
    Miao et al. 2023 (arXiv 2305.09781), multi-step speculative sampling.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts.tree import tree, tree_size
from decoders.errors import InputError, quoted
from decoders.laws import Law
from decoders.methods.speculative import speculate
from decoders.request import Request
from decoders.rules.multiround import MultiRoundRule
from decoders.settings import Decoding, Method, setting
from decoders.values import is_whole


def as_expansion(name: str, expansion: object) -> tuple[int, ...]:
    """The number of children of each layer.

    Args:
        name: the decoder's name, for messages
        expansion: whole numbers, or a text such as "3,2,1,1"

    Raises:
        InputError: for anything else, and for a tree that is too large
    """
    numbers = expansion
    if isinstance(numbers, str):
        parts = [part.strip() for part in numbers.split(",")]
        # A number with more digits is too large whatever they are.
        numbers = [int(part[:20]) if part.isdecimal() else part for part in parts]
    if (
        not isinstance(numbers, (list, tuple))
        or not numbers
        or not all(is_whole(n) and n >= 1 for n in numbers)
    ):
        raise InputError(
            f"{name}: expansion must be whole numbers of 1 or more, as 3,2,1,1, not "
            f"{quoted(expansion)}."
        )
    expansion = tuple(int(n) for n in numbers)
    tree_size(name, expansion)
    return expansion


@dataclass(frozen=True)
class SpecInfer(Method):
    name = "specinfer"
    title = "SpecInfer"
    law = Law.TARGET
    paper, section = "Miao et al. 2023 (SpecInfer)", "multi-step speculative sampling"
    summary = (
        "A tree of drafts, verified in one pass; the children of a token are tried one after "
        "another."
    )
    uses_draft = True

    expansion: tuple[int, ...] = setting(
        (3, 2, 1, 1), "children of each draft token, layer by layer, as 3,2,1,1", read=as_expansion
    )

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 1 + tree_size(self.name, self.expansion)

    def decode(self, request: Request) -> Decoding:
        return speculate(request, partial(tree, expansion=self.expansion), MultiRoundRule())
