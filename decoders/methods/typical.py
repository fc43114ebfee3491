"""Medusa's typical acceptance on the drafts of a draft model.

Source:
    Cai et al. 2024 (arXiv 2401.10774), typical acceptance.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts.chain import chain
from decoders.methods.speculative import DRAFT_LENGTH, speculate
from decoders.request import Request
from decoders.rules.typical import TypicalRule
from decoders.settings import Decoding, Method, setting


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
