"""SpecTr: several drafts at once, of which the target keeps the one that agrees longest.

Source:
    Sun et al. 2023 (arXiv 2310.15141), K-SEQ.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts.tree import tree, tree_size
from decoders.laws import Law
from decoders.methods.speculative import DRAFT_LENGTH, speculate
from decoders.request import Request
from decoders.rules.kseq import KSeqRule
from decoders.settings import Decoding, Method, setting


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
