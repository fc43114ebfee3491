"""Speculative sampling: accept with chance min(1, p / (l q)), else draw from the residual."""

import math
from dataclasses import dataclass

from decoders.distribution import Distribution, point_mass, residual
from decoders.reading import Reading
from decoders.rules.walk import Pick
from decoders.sampling import RandomSource
from decoders.shapes import TokenId


@dataclass(frozen=True, slots=True)
class SpeculativeRule:
    """Speculative sampling with lenience l.

    Attributes:
        lenience: l in (0, 1]; 1 is exact
        greedy: whether the temperature is 0. With lenience, a token is then accepted if p(x) >= l *
            max p on the raw target (the paper prints the inequality the wrong way round).

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, section 2.3 and appendix A.5.
    """

    lenience: float = 1.0
    greedy: bool = False

    def pick(
        self,
        p: Distribution,
        q: Distribution | None,
        tokens: list[TokenId],
        reading: Reading,
        source: RandomSource,
    ) -> Pick:
        (token,) = tokens
        p_token = p[token]
        q_token = 1.0 if q is None else q[token]
        if self.greedy and self.lenience < 1:
            gap = math.exp(reading.log_p(token)) / reading.highest
            probability = float(gap >= self.lenience)
        else:
            probability = min(1.0, p_token / (self.lenience * q_token))
        kept, u = source.accept(probability)
        pick = Pick([(p_token, q_token, probability, u)], kept)
        if not kept:
            pick.rest = residual(p, self.lenience * (point_mass(token) if q is None else q))
        return pick
