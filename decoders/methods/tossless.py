"""Drafts judged without randomness: Medusa's typical acceptance, and the big little decoder.

Source:
    Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance; Kim et al. 2023 (BiLD, arXiv
    2302.07863), fallback and rollback policies.
"""

from dataclasses import dataclass
from functools import partial

from decoders.drafts import chain, draft_model, tree
from decoders.methods.speculative import DRAFT_LENGTH, speculate
from decoders.request import Request
from decoders.rules import RollbackRule, TypicalRule
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
