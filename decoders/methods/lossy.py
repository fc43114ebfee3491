"""Rules whose output is not the target's: it has no known law, or that of a stated mixture.

For a mixture of target and draft, pi, drafts are judged as in speculative sampling with pi in place
of p, so the output has the law of sampling from pi one token at a time. It needs a q that is a
function of the text, as a draft model's is. What a head says depends on where rounds begin, and so
on what was kept before: with a head there is no law.

Source:
    Cai et al. 2024 (Medusa, arXiv 2401.10774), typical acceptance; Kim et al. 2023 (BiLD, arXiv
    2302.07863), rollback policy; Li et al. 2025 (FLy, arXiv 2511.22972); Narasimhan et al. 2024
    (Faster cascades via speculative decoding, arXiv 2405.19261); Fu et al. 2025 (Speculative
    ensemble, arXiv 2502.01662).
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from decoders.distribution import Distribution, Small, Whole, beside, minimum
from decoders.methods.rules import (
    Node,
    NodeWise,
    Pick,
    Rule,
    Tokenwise,
    Verdict,
    accepted,
    sides,
    walk,
    why_tested,
)  # fmt: skip
from decoders.methods.sources import CHAINS, Draft, Kind
from decoders.reading import Reading
from decoders.request import RandomSource, Request
from decoders.settings import Criterion, Law, setting
from decoders.shapes import TokenId
from decoders.trace import Fate, Trial


def tossless(
    token: TokenId, probability: float, passes: bool, p: Distribution, q: Distribution | None
) -> Pick:
    """The pick of a rule without randomness, which judges `token` by its probability alone.

    A refused token is replaced by a draw from p itself, so such a rule is lossy.
    """
    return Pick([(probability, 1.0 if q is None else q[token], None, None)], passes, rest=p)


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

    epsilon: float = setting(0.09, "a probability above this always passes", low=0.0, high=1.0)
    delta: float = setting(
        0.3, "where the target is unsure, delta exp(-entropy) is enough", low=0.0, high=1.0
    )

    @property
    def criterion(self) -> Criterion:
        says = (
            f"Kept if p is above {self.epsilon:g}, or above {self.delta:g} e to the power of −H if "
            "that is less: H is the entropy of the large model here, so where it is unsure, a "
            "lower p is enough."
        )
        return Criterion(says, self.epsilon, at_most=True)

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, (token,) = node[:3]
        probability = p[token]
        passes = probability > min(self.epsilon, self.delta * math.exp(-p.entropy))
        return tossless(token, probability, passes, p, q)

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        bound = (
            f"the smaller of {self.epsilon:g} and {self.delta:g} e^−H, where H is the large "
            "model’s entropy"
        )
        count = accepted(trials)
        if count == len(trials):
            least = min(trial.p or 0.0 for trial in trials)
            return f"The p of each token, {least:.3g} or more, is above {bound}."
        return f"The p of {names[count]}, {trials[count].p or 0.0:.3g}, is not above {bound}."


@dataclass(frozen=True)
class RollbackRule(NodeWise):
    """BiLD's rule: keep a token while -log p(x) <= rollback, or drop it with all that follows.

    Source:
        Kim et al. 2023 (BiLD, arXiv 2302.07863), rollback policy.
    """

    name = "rollback"
    law = None
    judges = CHAINS

    rollback: float = setting(
        2.0, "undo a token whose -log p under the target exceeds this, in nats", low=0.0, high=100.0
    )

    @property
    def criterion(self) -> Criterion:
        least = math.exp(-self.rollback)
        says = (
            "Kept if p, before temperature and cut-offs, is at least e to the power of "
            f"−{self.rollback:g}, which is {least:.3g}."
        )
        return Criterion(says, least, raw=True)

    def pick(self, node: Node, source: RandomSource) -> Pick:
        p, q, (token,), reading = node[:4]
        log_p = reading.log_p(token)
        return tossless(token, math.exp(log_p), -log_p <= self.rollback, p, q)

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        surprises = [-math.log(trial.p) if trial.p else math.inf for trial in trials]
        count = accepted(trials)
        if count == len(trials):
            highest, bound = sides(max(surprises), self.rollback)
            return f"The −ln p of each token is at most {bound}; the highest is {highest}."
        shown, bound = sides(surprises[count], self.rollback)
        return f"The −ln p of {names[count]}, {shown}, is above {bound}."


@dataclass(frozen=True)
class FLyRule(Rule):
    """Keeps a refused token where the target is unsure and the next W draft tokens are accepted.

    Source:
        Li et al. 2025 (FLy, arXiv 2511.22972).
    """

    name = "fly"
    law = None
    judges = CHAINS

    threshold: float = setting(
        0.3,
        "a refused token may stay where the target is unsure: where the part of its entropy from "
        "its three likeliest tokens is at least this, in nats",
        low=0.0,
        high=2.0,
    )
    window: int = setting(
        6, "and if this many draft tokens after it are accepted (W)", low=1, high=32
    )

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        p, rule = [request.warp(reading) for reading in readings], Tokenwise()
        draws = draft.draws
        trials = [Trial(d.node, d.token, d.parent, Fate.DISCARDED) for d in draws]
        refused: tuple[int, Distribution] | None = None  # a place, and what is left of p there
        for i, d in enumerate(draws):
            if refused and i > refused[0] + self.window:
                refused = None  # the window was accepted
            pick = rule.pick(
                Node(p[i], draft.q.get(d.parent), [d.token], readings[i]), request.source
            )
            trial = trials[i]
            trial.p, trial.q, trial.accept_probability, trial.u = pick.tests[0]
            if pick.accepted:
                continue
            assert pick.rest
            refused = refused or (i, pick.rest)
            unsure = sum(m * math.log(m) for m in three_likeliest(p[i]))
            if refused[0] < i or i + self.window >= len(draws) or -unsure < self.threshold:
                break
        else:
            refused = None
        count = refused[0] if refused else len(draws)
        for trial in trials[:count]:
            trial.fate = Fate.ACCEPTED
        if refused:
            trials[count].fate, fate, rest = Fate.REJECTED, Fate.CORRECTED, refused[1]
        else:
            fate, rest = (Fate.BONUS if draws else Fate.SAMPLED), p[-1]
        after = draws[count - 1].node if count else draft.root
        own, tip = request.sample(after, fate, rest, p[count])
        return [*trials, *own], tip

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        count = accepted(trials)
        failed = [
            name
            for name, t in zip(names, trials[:count], strict=False)
            if t.u is not None and t.accept_probability is not None and t.u >= t.accept_probability
        ]
        said, window = why_tested(trials, names), f"the next {self.window} pass"
        if count < len(trials):
            return (
                f"{said[:-1]}; a token that fails stays only where the large model is unsure and "
                f"{window}."
            )
        if failed:
            return (
                f"Tokens that fail stay where the large model is unsure and {window}: here "
                f"{', '.join(failed)}."
            )
        return said


def three_likeliest(p: Distribution) -> list[float]:
    if isinstance(p, Small):
        return sorted(p.mass.values())[-3:]
    return [m for m in p.mass.topk(min(3, len(p.mass))).values.tolist() if m > 0]


class Mixture(Rule):
    """A rule that is speculative sampling of pi(p, q)."""

    judges = frozenset({Kind.CHAIN})  # the law is a mixture with the draft model, not with counts
    lawless = frozenset({Kind.HEADED})
    beyond = True

    def judge(self, request: Request, draft: Draft, readings: Sequence[Reading]) -> Verdict:
        return walk(request, draft, readings, Tokenwise(), self.mixed)

    def why(self, trials: Sequence[Trial], names: Sequence[str]) -> str:
        return why_tested(trials, names, " in the mixture of both models")

    @abstractmethod
    def mixed(self, p: Distribution, q: Distribution) -> Distribution:
        """pi, from p and q."""


@dataclass(frozen=True)
class Cascade(Mixture):
    """Speculative cascades: q where it is good enough for p.

    By token: pi = q on the tokens with p(x) >= (1 - alpha) max p, and p times the rest of q.
    OPT: pi = q if max q >= max p - alpha TV(p, q), else p.
    """

    name = "cascade"
    law = Law.CASCADE

    alpha: float = setting(
        0.3,
        "how much less likely than its favourite the target may find a token",
        low=0.0,
        high=1.0,
    )
    defer: str = setting(
        "token",
        "token: each token of q that p finds likely enough stays; opt: q as a whole, where it is "
        "sure enough for its distance from p",
        choices=("token", "opt"),
    )

    def mixed(self, p: Distribution, q: Distribution) -> Distribution:
        if self.defer == "opt":
            distance = 1 - minimum(p, q).total
            # Equals but for rounding are equal: with alpha = 1, q is always sure enough.
            slack = 32 * max(p.rounding, q.rounding)
            sure = highest(q) >= highest(p) - self.alpha * distance - slack
            return q if sure else p
        least = (1 - self.alpha) * highest(p)
        if least == 0:
            return q
        if isinstance(p, Whole) and isinstance(q, Whole):
            rest: Distribution = Whole(q.mass * (beside(p.mass, q.mass) >= least))
        else:
            few = p if isinstance(p, Small) else p.within(x for x, _ in q.items())
            rest = q.within(x for x, m in few.mass.items() if m >= least)
        return total(rest, max(0.0, 1 - rest.total) * p)


@dataclass(frozen=True)
class Ensemble(Mixture):
    """The weighted mean of both models, w p + (1 - w) q."""

    name = "ensemble"
    law = Law.ENSEMBLE

    weight: float = setting(
        0.5, "weight of the target in the mixture (w); 1 is the target", low=0.0, high=1.0
    )

    def mixed(self, p: Distribution, q: Distribution) -> Distribution:
        return total(self.weight * p, (1 - self.weight) * q)


def highest(p: Distribution) -> float:
    return max(p.mass.values()) if isinstance(p, Small) else p.mass.max().item()


def total(p: Distribution, q: Distribution) -> Distribution:
    if isinstance(p, Small) and isinstance(q, Small):
        ids = sorted({*p.mass, *q.mass})
        return Small({x: m for x in ids if (m := p[x] + q[x]) > 0})
    whole, other = (p, q) if isinstance(p, Whole) else (q, p)
    assert isinstance(whole, Whole)
    if isinstance(other, Whole):
        return Whole(whole.mass + beside(other.mass, whole.mass).to(whole.mass.dtype))
    mass = whole.mass.clone()
    mass[list(other.mass)] += mass.new_tensor(list(other.mass.values()))
    return Whole(mass)
