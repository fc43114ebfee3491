"""Speculative decoding with other drafts and other rules: several drafts at once, lossy tests.

Source:
    Sun et al. 2023 (SpecTr, arXiv 2310.15141), K-SEQ; Miao et al. 2023 (SpecInfer, arXiv
    2305.09781), multi-step speculative sampling; Yang et al. 2024 (MCSD, arXiv 2401.06706), without
    replacement; Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance; Kim et al. 2023
    (BiLD, arXiv 2302.07863), fallback and rollback policies.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts import chain, draft_model, tree, tree_size, without_replacement
from decoders.errors import InputError, is_whole, quoted
from decoders.methods.speculative import DRAFT_LENGTH, speculate
from decoders.request import Request
from decoders.rules import KSeqRule, MultiRoundRule, RollbackRule, TypicalRule
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
        return speculate(
            request,
            partial(tree, expansion=self.expansion, sample=without_replacement),
            MultiRoundRule(replacement=False),
        )


@dataclass(frozen=True)
class Typical(Method):
    name = "typical"
    title = "Typical acceptance"
    law = None
    paper, section = "Cai et al. 2024 (Medusa)", "typical acceptance"
    summary = (
        "Keeps a draft token that the large model finds likely enough for how sure it is: fast, "
        "not exact."
    )
    uses_draft = True

    draft_length: int = DRAFT_LENGTH
    epsilon: float = setting(0.09, "a probability above this always passes", low=0.0, high=1.0)
    delta: float = setting(
        0.3, "where the target is unsure, delta exp(-entropy) is enough", low=0.0, high=1.0
    )

    def decode(self, request: Request) -> Decoding:
        return speculate(
            request, partial(chain, length=self.draft_length), TypicalRule(self.epsilon, self.delta)
        )


@dataclass(frozen=True)
class BiLD(Method):
    name = "bild"
    title = "BiLD"
    stands_for = "big little decoder"
    law = None
    paper, section = "Kim et al. 2023 (BiLD)", "fallback and rollback policies"
    summary = (
        "The small model writes while it is sure; the large one takes over when it hesitates, and "
        "undoes its mistakes."
    )
    uses_draft = True

    draft_length: int = setting(10, "most draft tokens per round (gamma)", low=1, high=64)
    fallback: float = setting(
        0.9,
        "stop drafting when the draft model's largest probability is below this; above 1: at once",
        low=0.0,
        high=2.0,
    )
    rollback: float = setting(
        2.0, "undo a token whose -log p under the target exceeds this, in nats", low=0.0, high=100.0
    )

    def decode(self, request: Request) -> Decoding:
        predict = partial(draft_model, least=self.fallback)
        return speculate(
            request,
            partial(tree, expansion=(1,) * self.draft_length, predict=predict),
            RollbackRule(self.rollback),
        )
