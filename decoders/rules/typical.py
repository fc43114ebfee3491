"""Rules without randomness: a draft token is kept if the target finds it likely enough.

Otherwise the target draws its own token.
"""

import math
from dataclasses import dataclass

from decoders.distribution import Distribution
from decoders.reading import Reading
from decoders.rules.walk import Pick
from decoders.sampling import RandomSource
from decoders.shapes import TokenId


def tossless(
    token: TokenId, probability: float, kept: bool, p: Distribution, q: Distribution | None
) -> Pick:
    """The pick of a rule that judges `token` by its probability alone.

    A refused token is replaced by a draw from p itself, so such a rule is lossy.
    """
    q_token = 1.0 if q is None else q[token]
    return Pick([(probability, q_token, None, None)], kept, rest=p)


@dataclass(frozen=True)
class TypicalRule:
    """Medusa's typical acceptance: p(x) > min(epsilon, delta exp(-H(p))).

    p and its entropy H (nats) are those after warping.

    Source:
        Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance.
    """

    epsilon: float = 0.09
    delta: float = 0.3

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
