"""Rules that keep what is good enough, so that the output has no known law.

Source:
    Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance; Kim et al. 2023 (BiLD, arXiv
    2302.07863), rollback policy.
"""

import math
from dataclasses import dataclass

from decoders.distribution import Distribution, RandomSource
from decoders.methods.parts import CHAINS
from decoders.methods.variants import NodeWise
from decoders.reading import Reading
from decoders.rules import Pick
from decoders.settings import setting
from decoders.shapes import TokenId

EPSILON = setting(0.09, "a probability above this always passes", low=0.0, high=1.0)
DELTA = setting(0.3, "where the target is unsure, delta exp(-entropy) is enough", low=0.0, high=1.0)
ROLLBACK = setting(
    2.0, "undo a token whose -log p under the target exceeds this, in nats", low=0.0, high=100.0
)


def tossless(
    token: TokenId, probability: float, kept: bool, p: Distribution, q: Distribution | None
) -> Pick:
    """The pick of a rule without randomness, which judges `token` by its probability alone.

    A refused token is replaced by a draw from p itself, so such a rule is lossy.
    """
    return Pick([(probability, 1.0 if q is None else q[token], None, None)], kept, rest=p)


@dataclass(frozen=True)
class TypicalRule(NodeWise):
    """Medusa's typical acceptance: p(x) > min(epsilon, delta exp(-H(p))).

    p and its entropy H (nats) are those after warping.

    Source:
        Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance.
    """

    name = "typical"
    law = None
    judges = CHAINS

    epsilon: float = EPSILON
    delta: float = DELTA

    def pick(
        self,
        p: Distribution,
        q: Distribution | None,
        tokens: list[TokenId],
        reading: Reading,
        source: RandomSource,
    ) -> Pick:
        (token,) = tokens
        probability = p[token]
        kept = probability > min(self.epsilon, self.delta * math.exp(-p.entropy))
        return tossless(token, probability, kept, p, q)


@dataclass(frozen=True)
class RollbackRule(NodeWise):
    """BiLD's rule: keep a token while -log p(x) <= rollback, or drop it with all that follows.

    Source:
        Kim et al. 2023 (BiLD, arXiv 2302.07863), rollback policy.
    """

    name = "rollback"
    law = None
    judges = CHAINS

    rollback: float = ROLLBACK

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
        return tossless(token, math.exp(log_p), -log_p <= self.rollback, p, q)
