"""What a rule makes of a draft, in numbers and in a sentence (Judgement)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from decoders.methods.parts import Rule
from decoders.shapes import TokenId
from decoders.trace import Trial


@dataclass(frozen=True)
class Judgement:
    """What a rule makes of a draft.

    As a text, its name, what it keeps and why, with ids for tokens.

    Attributes:
        rule: the rule with its settings
        kept: how many tokens it keeps, with these random numbers
        token: the token that the target writes after them
        trials: the draft's tokens with what the rule tested
        chances: for each token the chance that it is kept, over all random numbers
    """

    rule: Rule
    kept: int
    token: TokenId
    trials: Sequence[Trial]
    chances: Sequence[float]

    @property
    def expected(self) -> float:
        """The mean number of tokens kept, over all random numbers."""
        return math.fsum(self.chances)

    def why(self, names: Sequence[str] = ()) -> str:
        """One sentence that says why it keeps as many.

        Args:
            names: the draft's tokens in words; by default their ids
        """
        names = names or [str(trial.token) for trial in self.trials]
        return _REASONS.get(self.rule.name, _tested)(self, [f"“{name}”" for name in names])

    def __str__(self) -> str:
        return (
            f"{named(self.rule)}: keeps {self.kept} of {len(self.trials)} "
            f"({self.expected:.2f} on average). {self.why()}"
        )


def named(rule: Rule) -> str:
    """A rule's name, with its settings if they are not the usual ones."""
    own = ", ".join(
        f"{f.name}={value}" for f in fields(rule) if (value := getattr(rule, f.name)) != f.default
    )
    return f"{rule.name}({own})" if own else rule.name


def _sides(a: float, b: float) -> tuple[str, str]:
    """Two numbers with as many digits as tell which of them is less."""
    for digits in range(3, 17):
        one, other = f"{a:.{digits}g}", f"{b:.{digits}g}"
        if (float(one) < float(other), float(one) > float(other)) == (a < b, a > b):
            break
    return one, other


def _tested(of: Judgement, names: Sequence[str], whose: str = "") -> str:
    """Of rules that test one token after another with a random number."""
    if of.kept == len(of.trials):
        gaps = [(t.accept_probability or 0.0) - (t.u or 0.0) for t in of.trials]
        place = gaps.index(min(gaps))
        u, chance = _sides(of.trials[place].u or 0.0, of.trials[place].accept_probability or 0.0)
        return (
            f"Each token passed its test; {names[place]} came nearest to failing, with the random "
            f"number {u} below its chance {chance}."
        )
    trial = of.trials[of.kept]
    if trial.accept_probability is None or trial.u is None:
        return f"It refused {names[of.kept]}."
    u, chance = _sides(trial.u, trial.accept_probability)
    p, q = (f"{0.0 if x is None else x:.3g}" for x in (trial.p, trial.q))
    return (
        f"{names[of.kept]} has p {p}{whose} and q {q}, so it passes with chance {chance}; the "
        f"random number {u} is not below that."
    )


def _whole(of: Judgement, names: Sequence[str]) -> str:
    """Of rules that judge a draft as a whole, from its last token to its first."""
    if not of.kept:
        first = of.trials[0]
        u, a = _sides(first.u or 0.0, first.accept_probability or 0.0)
        return (
            "Judged as a whole, no beginning passes: the last one tried, the first token alone, "
            f"passes with chance {a}, and its random number {u} is not below that."
        )
    last = of.trials[of.kept - 1]
    u, a = _sides(last.u or 0.0, last.accept_probability or 0.0)
    whole = of.kept == len(of.trials)
    what = "the whole draft" if whole else f"the part up to {names[of.kept - 1]}"
    return (
        f"Judged as a whole, {what} passes with chance {a}, and its random number {u} is below "
        "that."
    )


def _drawn(of: Judgement, names: Sequence[str]) -> str:
    if of.kept == len(of.trials):
        chance = math.prod(trial.p or 0.0 for trial in of.trials)
        return f"The large model drew the whole draft itself, which has chance {chance:.3g}."
    chance = of.trials[of.kept].p or 0.0
    return (
        f"The large model drew another token in place of {names[of.kept]}, which it draws with "
        f"chance {chance:.3g}."
    )


def _typical(of: Judgement, names: Sequence[str]) -> str:
    rule: Any = of.rule  # the one that _REASONS pairs with this function
    epsilon, delta = rule.epsilon, rule.delta
    bound = f"the smaller of {epsilon:g} and {delta:g} e^−H, where H is the large model’s entropy"
    if of.kept == len(of.trials):
        least = min(trial.p or 0.0 for trial in of.trials)
        return f"The p of each token, {least:.3g} or more, is above {bound}."
    return f"The p of {names[of.kept]}, {of.trials[of.kept].p or 0.0:.3g}, is not above {bound}."


def _rollback(of: Judgement, names: Sequence[str]) -> str:
    rule: Any = of.rule  # as above
    most = rule.rollback
    if of.kept == len(of.trials):
        highest, bound = _sides(max(-math.log(trial.p or 1.0) for trial in of.trials), most)
        return f"The −ln p of each token is at most {bound}; the highest is {highest}."
    surprise = -math.log(of.trials[of.kept].p or 0.0) if of.trials[of.kept].p else math.inf
    shown, bound = _sides(surprise, most)
    return f"The −ln p of {names[of.kept]}, {shown}, is above {bound}."


def _joint(of: Judgement, names: Sequence[str]) -> str:
    rule: Any = of.rule  # as above
    least = rule.threshold
    place = max(of.kept, 1) - 1
    ratio, bound = _sides(of.trials[place].accept_probability or 0.0, least)
    if not of.kept:
        return (
            f"The joint ratio, all p / all q, is not above {bound} for any beginning; for "
            f"{names[0]} alone it is {ratio}."
        )
    what = "the whole draft" if of.kept == len(of.trials) else f"the part up to {names[place]}"
    most = "" if of.kept == len(of.trials) else ", and for no longer part"
    return f"The joint ratio, all p / all q, of {what} is {ratio}, above {bound}{most}."


def _loose(of: Judgement, names: Sequence[str]) -> str:
    """FLy keeps some tokens that failed their test."""
    failed = [
        names[i]
        for i, t in enumerate(of.trials[: of.kept])
        if t.u is not None and t.accept_probability is not None and t.u >= t.accept_probability
    ]
    said, window = _tested(of, names), f"the next {of.rule.window} pass"
    if of.kept < len(of.trials):
        return (
            f"{said[:-1]}; a token that fails stays only where the large model is unsure and "
            f"{window}."
        )
    if failed:
        return f"Tokens that fail stay where the large model is unsure and {window}: here " + (
            f"{', '.join(failed)}."
        )
    return said


def _mixed(of: Judgement, names: Sequence[str]) -> str:
    return _tested(of, names, " in the mixture of both models")


_REASONS = {
    "match": _drawn, "block": _whole, "traversal": _whole, "multipath": _whole,
    "typical": _typical, "rollback": _rollback, "mtad": _joint, "fly": _loose,
    "cascade": _mixed, "ensemble": _mixed,
}  # fmt: skip
