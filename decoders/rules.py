"""The rules by which the target's distributions judge the children of one node of a draft."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from decoders.distribution import Distribution, minimum, point_mass, residual
from decoders.randomness import RandomSource
from decoders.reading import Reading
from decoders.shapes import TokenId
from decoders.theory import kseq_division


@dataclass(slots=True)
class Pick:
    """The outcome of a rule at one node.

    Attributes:
        tests: (p, q, accept probability, u) of each child that it tested, in the order drawn
        kept: whether it kept the last one tested
        rest: if not, the distribution that the target's token is drawn from instead
    """

    tests: list[tuple[float, float | None, float | None, float | None]] = field(
        default_factory=list
    )
    kept: bool = False
    rest: Distribution | None = None


class Node(NamedTuple):
    """What a rule knows of a node.

    Attributes:
        p: the target's warped distribution of the next token there
        q: the distribution that the children were drawn from; None for a certain child
        tokens: the children, in the order drawn
        reading: the target's raw numbers there
    """

    p: Distribution
    q: Distribution | None
    tokens: list[TokenId]
    reading: Reading


class NodeRule(Protocol):
    def pick(self, node: Node, source: RandomSource) -> Pick:
        """Judge the children of a node, with all chance from `source`."""


@dataclass(frozen=True, slots=True)
class SpeculativeRule:
    """Speculative sampling: accept with chance min(1, p / (l q)), else draw from the residual.

    Attributes:
        lenience: l in (0, 1]; 1 is exact
        greedy: whether the temperature is 0. With lenience, a token is then accepted if p(x) >= l *
            max p on the raw target (the paper prints the inequality the wrong way round).

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, section 2.3 and appendix A.5.
    """

    lenience: float = 1.0
    greedy: bool = False

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, (token,), reading = node
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


class KSeqRule:
    """K-SEQ, SpecTr's rule: accept draft i = 1 .. k in turn with probability min(1, p / (rho q)).

    If none is accepted, draw from the residual: with beta = sum min(q, p/rho), it is

        (p - min(q, p/rho) (1 - (1-beta)^k) / beta) / (1-beta)^k.

    k is the number of drafts still on the accepted path; k = 1 is speculative decoding.

    Source:
        Sun et al. 2023 (SpecTr, arXiv 2310.15141), K-SEQ.
    """

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, tokens, _ = node
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


@dataclass(frozen=True, slots=True)
class MultiRoundRule:
    """Multi-round rejection: accept a child with probability min(1, p'/q), and at the end draw p'.

    p' is p at first, and norm(max(0, p' - q)) after each rejection.

    Attributes:
        replacement: True if the children were drawn i.i.d. from q (SpecInfer): equal ones are tried
            as often as they were drawn. False if they were drawn without replacement (MCSS): a
            refused token is removed from q too.

    Source:
        Miao et al. 2023 (SpecInfer, arXiv 2305.09781); Yang et al. 2024 (MCSD, arXiv 2401.06706).
    """

    replacement: bool = True

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, tokens, _ = node
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
