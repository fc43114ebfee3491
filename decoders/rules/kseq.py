"""K-SEQ, SpecTr's rule: several i.i.d. draft tokens, each accepted by the same discounted ratio."""

from decoders.distribution import Distribution, minimum, residual
from decoders.reading import Reading
from decoders.rules.walk import Pick
from decoders.sampling import RandomSource
from decoders.shapes import TokenId
from decoders.theory import kseq_division


class KSeqRule:
    """Accept draft i = 1 .. k in turn with probability min(1, p / (rho q)).

    If none is accepted, draw from the residual: with beta = sum min(q, p/rho), it is

        (p - min(q, p/rho) (1 - (1-beta)^k) / beta) / (1-beta)^k.

    k is the number of drafts still on the accepted path; k = 1 is speculative decoding.

    Source:
        Sun et al. 2023 (SpecTr, arXiv 2310.15141), K-SEQ.
    """

    def pick(
        self,
        p: Distribution,
        q: Distribution | None,
        tokens: list[TokenId],
        reading: Reading,
        source: RandomSource,
    ) -> Pick:
        assert q is not None  # its drafts are drawn
        rho = kseq_division(p, q, len(tokens))
        pick = Pick()
        for token in tokens:
            p_token, q_token = p[token], q[token]
            probability = min(1.0, p_token / (rho * q_token))
            pick.kept, u = source.accept(probability)
            pick.tests.append((p_token, q_token, probability, u))
            if pick.kept:
                return pick
        overlap = minimum(q, p / rho)
        beta = overlap.total
        scale = (1 - (1 - beta) ** len(tokens)) / beta if beta > 0 else 0.0
        pick.rest = residual(p, scale * overlap)
        return pick
