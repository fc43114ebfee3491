"""Multi-candidate speculative sampling: a tree of drafts whose children all differ.

Source:
    Yang et al. 2024 (arXiv 2401.06706), without replacement.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts.tree import tree, without_replacement
from decoders.methods.specinfer import SpecInfer
from decoders.methods.speculative import speculate
from decoders.request import Request
from decoders.rules.multiround import MultiRoundRule
from decoders.settings import Decoding


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
