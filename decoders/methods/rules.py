"""How the target's distributions judge a draft: rules that walk down it, node by node.

A source and a rule that fit make a decoder, see `decoders.methods.named`.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192); Sun et al. 2023 (SpecTr, arXiv 2310.15141), K-SEQ;
    Miao et al. 2023 (SpecInfer, arXiv 2305.09781), multi-step speculative sampling; Yang et al.
    2024 (MCSD, arXiv 2401.06706), without replacement.
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, NamedTuple

from decoders.distribution import Distribution, minimum, point_mass, residual
from decoders.methods.sources import (
    CHAINS,
    DRAWN,
    Draft,
    Drafting,
    Kind,
    Source,
)
from decoders.reading import Reading
from decoders.request import RandomSource, Request
from decoders.settings import Checked, Criterion, Decoding, Law, claim, setting
from decoders.shapes import NodeId, TokenId
from decoders.theory import kseq_division
from decoders.trace import Fate, Trial

# p, q, accept probability and u of a child that was tested.
Test = tuple[float, float | None, float | None, float | None]


@dataclass(slots=True)
class Pick:
    """The outcome of a rule at one node.

    Attributes:
        tests: those of the children that it tested, in the order drawn
        accepted: whether it kept the last one tested
        rest: if not, the distribution that the target's token is drawn from instead
    """

    tests: list[Test] = field(default_factory=list)
    accepted: bool = False
    rest: Distribution | None = None


class Node(NamedTuple):
    """What a rule knows of a node.

    Attributes:
        p: the target's warped distribution of the next token there
        q: the distribution that the children were drawn from; None for a certain child
        tokens: the children, in the order drawn
        reading: the target's raw numbers there
        greedy: whether the temperature is 0
        distinct: whether the children were drawn without replacement
    """

    p: Distribution
    q: Distribution | None
    tokens: list[TokenId]
    reading: Reading
    greedy: bool = False
    distinct: bool = False


Verdict = tuple[list[Trial], NodeId]  # every trial, and the new tip


class Rule(Checked, ABC):
    """How the target's distributions judge a draft: a frozen dataclass of settings.

    Attributes:
        law: the law of the output
        judges: the drafts for which it has that law
        lawless: drafts that it judges too, and then the output has no known law
        window: it does nothing of its own in drafts of at most this length
        beyond: whether it needs q after the last draft token too, for the bonus token
        backwards: whether it tests the last draft token first
    """

    law: ClassVar[Law | None] = Law.TARGET
    window: int = 0
    judges: ClassVar[frozenset[Kind]]
    lawless: ClassVar[frozenset[Kind]] = frozenset()
    beyond: ClassVar[bool] = False
    backwards: ClassVar[bool] = False

    @classmethod
    def fits(cls, source: "Source | type[Source]") -> bool:
        return source.kind in cls.judges | cls.lawless

    @abstractmethod
    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        """Judge the draft of a round.

        Args:
            readings: the target's readings at `draft.nodes`

        Returns:
            Every trial, and the new tip.
        """

    @property
    def criterion(self) -> Criterion:
        return Criterion()

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        """One sentence that says why it keeps as many tokens of a chain.

        Args:
            trials: those of the draft's tokens
            names: the tokens in words
        """
        return why_tested(trials, names)


def accepted(trials: Sequence[Trial]) -> int:
    return sum(trial.fate == Fate.ACCEPTED for trial in trials)


def sides(a: float, b: float) -> tuple[str, str]:
    """Two numbers with as many digits as tell which of them is less."""
    for digits in range(3, 17):
        one, other = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if (float(one) < float(other), float(one) > float(other)) == (a < b, a > b):
            break
    return one, other


def why_tested(trials: Sequence[Trial], names: Sequence[str], whose: str = "") -> str:
    """Of rules that test one token after another with a random number."""
    count = accepted(trials)
    if count == len(trials):
        gaps = [(t.accept_probability or 0.0) - (t.u or 0.0) for t in trials]
        place = gaps.index(min(gaps))
        u, chance = sides(trials[place].u or 0.0, trials[place].accept_probability or 0.0)
        return (
            f"Each token passed its test; {names[place]} came nearest to failing, with the random "
            f"number {u} below its chance {chance}."
        )
    trial = trials[count]
    if trial.accept_probability is None or trial.u is None:
        return f"It refused {names[count]}."
    u, chance = sides(trial.u, trial.accept_probability)
    p, q = (f"{0.0 if x is None else x:.3g}" for x in (trial.p, trial.q))
    return (
        f"{names[count]} has p {p}{whose} and q {q}, so it passes with chance {chance}; the "
        f"random number {u} is not below that."
    )


Parts = tuple[Source, Rule]


def speculate(request: Request, drafting: Drafting, rule: Rule) -> Decoding:
    """Draft, verify, correct, for any source and any rule.

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1.
    """
    propose, predict, learn, likeliest, pause = drafting
    while not request.finished:
        draft = yield from propose(request)
        if pause and not draft.draws and rule.law is Law.TARGET:
            yield from request.alone(min(1 + pause(), request.left))
            continue
        if rule.beyond and predict:
            (last,) = draft.nodes[-1:]
            draft.q.update(zip([last], (yield from predict(request, [last])), strict=True))
        readings = yield request.ask("target", draft.nodes, likeliest)
        if learn:
            learn(draft, readings)
        yield request.advance(*rule.judge(request, draft, readings))


class NodeWise(Rule):
    """A rule that judges the children of one node after another."""

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        return walk(request, draft, readings, self)

    @abstractmethod
    def pick(self, node: Node, source: RandomSource) -> Pick:
        """Judge the children of a node, with all chance from `source`."""


@dataclass(frozen=True)
class Tokenwise(NodeWise):
    """Speculative sampling: accept with chance min(1, p / (l q)), else draw from the residual.

    With a lenience l below 1 it has no law. At temperature 0, a token is then accepted if p(x) >= l
    max p on the raw target (the paper prints the inequality the wrong way round).

    Source:
        Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, section 2.3 and appendix A.5.
    """

    name = "tokenwise"
    judges = CHAINS

    lenience: float = setting(
        1.0,
        "below 1, drafts are accepted more readily and the output is no longer exact",
        low=0.01,
        high=1.0,
    )

    @claim
    def law(self) -> Law | None:
        return Law.TARGET if self.lenience == 1 else None

    @property
    def criterion(self) -> Criterion:
        if self.lenience == 1:
            return Criterion()
        return Criterion(
            f"Lenience {self.lenience:g}: a draft is accepted more readily than p / q says, and "
            "the text is no longer exact."
        )

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, (token,), reading, greedy, _ = node
        p_token = p[token]
        q_token = 1.0 if q is None else q[token]
        if greedy and self.lenience < 1:
            gap = math.exp(reading.log_p(token)) / reading.highest
            probability = float(gap >= self.lenience)
        else:
            probability = min(1.0, p_token / (self.lenience * q_token))
        passes, u = source.accept(probability)
        pick = Pick([(p_token, q_token, probability, u)], passes)
        if not passes:
            pick.rest = residual(p, self.lenience * (point_mass(token) if q is None else q))
        return pick


@dataclass(frozen=True)
class MatchRule(NodeWise):
    """Draw y from p: a child that is y is kept, and y is the correction if none is.

    It needs no q, so it is exact for any draft that does not depend on y, chosen trees included;
    a drawn token is kept with chance sum p q instead of the most possible, 1 - TV.
    """

    name = "match"
    judges = frozenset(Kind)

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, tokens = node[:3]
        (y,) = source.draw(p)
        hit = y in tokens
        tested = tokens[: tokens.index(y) + 1] if hit else tokens
        tests: list[Test] = [(p[x], None if q is None else q[x], p[x], None) for x in tested]
        return Pick(tests, hit, rest=point_mass(y))

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        count = accepted(trials)
        if count == len(trials):
            chance = math.prod(trial.p or 0.0 for trial in trials)
            return f"The large model drew the whole draft itself, which has chance {chance:.3g}."
        return (
            f"The large model drew another token in place of {names[count]}, which it draws with "
            f"chance {trials[count].p or 0.0:.3g}."
        )


@dataclass(frozen=True)
class KSeq(NodeWise):
    """K-SEQ, SpecTr's rule: accept draft i = 1 .. k in turn with probability min(1, p / (rho q)).

    If none is accepted, draw from the residual: with beta = sum min(q, p/rho), it is

        (p - min(q, p/rho) (1 - (1-beta)^k) / beta) / (1-beta)^k.

    k is the number of drafts still on the accepted path; k = 1 is speculative decoding. The drafts
    are drawn independently.

    Source:
        Sun et al. 2023 (SpecTr, arXiv 2310.15141), K-SEQ.
    """

    name = "kseq"
    judges = DRAWN - {Kind.DISTINCT}
    criterion = Criterion("p / q is divided by a factor that makes several drafts together exact.")

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, tokens = node[:3]
        assert q is not None  # its drafts are drawn
        rho = kseq_division(p, q, len(tokens))
        pick = Pick()
        for token in tokens:
            p_token, q_token = p[token], q[token]
            probability = min(1.0, p_token / (rho * q_token))
            pick.accepted, u = source.accept(probability)
            pick.tests.append((p_token, q_token, probability, u))
            if pick.accepted:
                return pick
        overlap = minimum(q, p / rho)
        beta = overlap.total
        scale = (1 - (1 - beta) ** len(tokens)) / beta if beta > 0 else 0.0
        pick.rest = residual(p, scale * overlap)
        return pick


@dataclass(frozen=True)
class MultiRound(NodeWise):
    """Multi-round rejection: accept a child with probability min(1, p'/q), and at the end draw p'.

    p' is p at first, and norm(max(0, p' - q)) after each rejection. Children that were drawn i.i.d.
    from q (SpecInfer) are tried as often as they were drawn. Of those that were drawn without
    replacement (MCSS), a refused token is removed from q too.

    Source:
        Miao et al. 2023 (SpecInfer, arXiv 2305.09781); Yang et al. 2024 (MCSD, arXiv 2401.06706).
    """

    name = "multiround"
    judges = DRAWN
    criterion = Criterion("p is the large model's probability left after earlier refusals here.")

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, tokens = node[:3]
        assert q is not None  # children of a tree are drawn
        pick, rest = Pick(), p
        for token in tokens:
            p_token, q_token = rest[token], q[token]
            probability = min(1.0, p_token / q_token)
            pick.accepted, u = source.accept(probability)
            pick.tests.append((p_token, q_token, probability, u))
            if pick.accepted:
                break
            rest = residual(rest, q)
            if node.distinct:
                q = q.without(token)
        pick.rest = rest
        return pick


def walk(
    request: Request,
    draft: Draft,
    readings: Sequence[Reading],
    rule: NodeWise,
    mixed: Callable[[Distribution, Distribution], Distribution] | None = None,
) -> Verdict:
    """Judge a draft: at each node, go on below the child that the rule keeps.

    Args:
        readings: the target's readings at `draft.nodes`
        rule: judges the children of each node
        mixed: what is sampled in place of p, from p and q

    Returns:
        Every trial, the children of each visited node first, and the new tip.
    """
    known = dict(zip(draft.nodes, readings, strict=True))
    below, trials = defaultdict(list), list[Trial]()
    for d in draft.draws:
        below[d.parent].append(Trial(d.node, d.token, d.parent, Fate.DISCARDED))
    node, greedy = draft.root, request.warping.temperature == 0
    while children := below.pop(node, None):
        reading = known[node]
        p, q = request.warp(reading), draft.q.get(node)
        p = mixed(p, q) if mixed and q else p
        tokens = [child.token for child in children]
        pick = rule.pick(Node(p, q, tokens, reading, greedy, draft.distinct), request.source)
        trials += children
        for child, test in zip(children, pick.tests, strict=False):
            child.fate = Fate.REJECTED
            child.p, child.q, child.accept_probability, child.u = test
        if not pick.accepted:
            assert pick.rest is not None  # a rule that refuses says what is left
            fate, probs = Fate.CORRECTED, pick.rest
            break
        child.fate, node = Fate.ACCEPTED, child.node
    else:
        p, q = request.warp(known[node]), draft.q.get(node)
        p = probs = mixed(p, q) if mixed and q else p
        fate = Fate.BONUS if draft.draws else Fate.SAMPLED
    own, tip = request.sample(node, fate, probs, p)
    return [*trials, *chain.from_iterable(below.values()), *own], tip
