"""Several drafts at once, verified in one pass: SpecTr's chains, SpecInfer's and MCSS's trees.

Source:
    Sun et al. 2023 (SpecTr, arXiv 2310.15141), K-SEQ; Miao et al. 2023 (SpecInfer, arXiv
    2305.09781), multi-step speculative sampling; Yang et al. 2024 (MCSD, arXiv 2401.06706), without
    replacement.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts import tree, tree_size, without_replacement
from decoders.errors import InputError, is_whole, quoted
from decoders.methods.speculative import DRAFT_LENGTH, speculate
from decoders.request import Request
from decoders.rules import KSeqRule, MultiRoundRule
from decoders.settings import Decoding, Law, Method, setting


@dataclass(frozen=True)
class SpecTr(Method):
    name = "spectr"
    title = "SpecTr"
    stands_for = "speculative decoding by optimal transport"
    law = Law.TARGET
    paper, section = "Sun et al. 2023 (SpecTr)", "K-SEQ"
    summary = (
        "Several drafts at once: the large model keeps the one that agrees longest, by optimal "
        "transport."
    )
    uses_draft = True

    drafts: int = setting(4, "drafts per round, i.i.d. (k)", low=1, high=64)
    draft_length: int = DRAFT_LENGTH

    def __post_init__(self) -> None:
        super().__post_init__()
        tree_size(self.name, self._expansion)

    @property
    def _expansion(self) -> tuple[int, ...]:
        return (self.drafts,) + (1,) * (self.draft_length - 1)

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 1 + tree_size(self.name, self._expansion)

    def decode(self, request: Request) -> Decoding:
        return speculate(request, partial(tree, expansion=self._expansion), KSeqRule())


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


@dataclass(frozen=True)
class MCSS(SpecInfer):
    name = "mcss"
    title = "MCSS"
    stands_for = "multi-candidate speculative sampling"
    paper, section = "Yang et al. 2024 (MCSD)", "without replacement"
    summary = "SpecInfer's tree with children that all differ, so that no token is tried twice."

    def decode(self, request: Request) -> Decoding:
        grow = partial(tree, expansion=self.expansion, sample=without_replacement)
        return speculate(request, grow, MultiRoundRule(replacement=False))
