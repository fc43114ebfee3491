"""BiLD, the big little decoder: the small model writes and calls the large one when it hesitates.

Source:
    Kim et al. 2023 (arXiv 2302.07863), fallback and rollback policies.
"""

import math
from dataclasses import dataclass
from functools import partial

from decoders.distribution import Distribution
from decoders.drafts.tree import confident, tree
from decoders.methods.speculative import speculate
from decoders.reading import Reading
from decoders.request import Request
from decoders.rules.typical import tossless
from decoders.rules.walk import Pick
from decoders.sampling import RandomSource
from decoders.settings import Decoding, Method, setting
from decoders.shapes import TokenId


@dataclass(frozen=True)
class RollbackRule:
    """Keep a token while -log p(x) <= rollback; a refused one is dropped with all that follows.

    Attributes:
        rollback: threshold in nats, on the raw p
    """

    rollback: float = 2.0

    def pick(
        self,
        p: Distribution,
        q: Distribution | None,
        tokens: list[TokenId],
        reading: Reading,
        source: RandomSource,
    ) -> Pick:
        (token,) = tokens
        log_p = reading.log_p(token)
        kept = -log_p <= self.rollback
        return tossless(token, math.exp(log_p), kept, p, q)


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
        predict = partial(confident, least=self.fallback)
        return speculate(
            request,
            partial(tree, expansion=(1,) * self.draft_length, predict=predict),
            RollbackRule(self.rollback),
        )
