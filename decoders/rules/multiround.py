"""Multi-round rejection: the children of a node are tried one after another.

Each is compared with the part of p that the refusals before it have left.
"""

from dataclasses import dataclass

from decoders.distribution import Distribution, residual
from decoders.reading import Reading
from decoders.rules.walk import Pick
from decoders.sampling import RandomSource
from decoders.shapes import TokenId


@dataclass(frozen=True, slots=True)
class MultiRoundRule:
    """Accept a child with probability min(1, p'/q), and at the end draw from p'.

    p' is p at first, and norm(max(0, p' - q)) after each rejection.

    Attributes:
        replacement: True if the children were drawn i.i.d. from q (SpecInfer): equal ones are tried
            as often as they were drawn. False if they were drawn without replacement (MCSS): a
            refused token is removed from q too.

    Source:
        Miao et al. 2023 (SpecInfer, arXiv 2305.09781); Yang et al. 2024 (MCSD, arXiv 2401.06706).
    """

    replacement: bool = True

    def pick(
        self,
        p: Distribution,
        q: Distribution | None,
        tokens: list[TokenId],
        reading: Reading,
        source: RandomSource,
    ) -> Pick:
        assert q is not None  # children of a tree are drawn
        pick, rest = Pick(), p
        for token in tokens:
            p_token, q_token = rest[token], q[token]
            probability = min(1.0, p_token / q_token)
            pick.kept, u = source.accept(probability)
            pick.tests.append((p_token, q_token, probability, u))
            if pick.kept:
                break
            rest = residual(rest, q)
            if not self.replacement:
                q = q.without(token)
        pick.rest = rest
        return pick
