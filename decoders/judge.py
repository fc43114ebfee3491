"""One draft judged by many rules, each with the same random numbers (judge)."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import torch

from decoders.distribution import Distribution, Warping, Whole
from decoders.errors import InputError, is_whole, plain, quoted, refuse
from decoders.inputs import as_list, as_tokens
from decoders.methods.named import RULES, part
from decoders.methods.rules import Rule, accepted
from decoders.methods.sources import Draft, Kind
from decoders.reading import Reading, Readings
from decoders.request import Draw, Request, SeededSource
from decoders.shapes import NodeId, Probs, TokenId
from decoders.testing.oracle import Branches, outcomes
from decoders.trace import DRAFTED, Fate, Trial


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
        return self.rule.why(self.trials, [f"“{name}”" for name in names])

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


LONGEST = 64  # tokens of a draft
SUM = 1e-4  # how far from 1 a row's sum may be


def judge(
    p: Any,
    q: Any,
    tokens: Sequence[TokenId],
    rules: Sequence[Rule | str] = (),
    *,
    raw: Any = None,
    seed: int = 0,
    uniforms: Sequence[float | None] = (),
) -> list[Judgement]:
    """Let many rules judge one draft, with the code that the decoders run.

    A rule that tests the token at place i tests it with the same random number as all others do.
    So the answers differ by the rules alone. Each also says how likely it was to keep every token,
    over all random numbers.

    Args:
        p: the target's distributions before each token and after the last, (gamma + 1, V)
        q: the distributions that the tokens were drawn from, (gamma, V), or (gamma + 1, V) with
            that of the token after, which mixtures need; None if nothing was drawn, as of a copy
        tokens: the draft's token ids, (gamma,)
        rules: rules, or their names with settings, as "typical(epsilon=0.1)"; by default all that
            fit
        raw: the target's distributions before temperature and cut-offs, like p, which a few rules
            read; by default p
        seed: of the random numbers
        uniforms: the random number of each place's test, where it is known; None elsewhere

    Returns:
        A judgement for each rule.

    Raises:
        InputError: for rows that are no distributions, tokens that q cannot have drawn, and rules
            that do not fit

    Example:
        ```python
        places = decoders.read(pair, "Once upon a time", draft, temperature=0.8)
        for each in decoders.judge(places.p, places.q, places.tokens):
            print(each)
        ```
    """
    case = _Case(p, q, tokens, raw)
    listed = as_list(uniforms)
    known = [plain(u) for u in listed] if isinstance(listed, list) else [listed]
    usable = (u is None or (type(u) in (int, float) and 0 <= u <= 1) for u in known)
    refuse(
        (not is_whole(seed), f"seed must be a whole number, not {quoted(seed)}."),
        (
            not (isinstance(listed, list) and all(usable) and len(known) <= len(case.tokens)),
            "uniforms must be a list with a number from 0 to 1, or None, for each token, not "
            f"{quoted(uniforms)}.",
        ),
    )
    fresh = SeededSource(int(seed))
    known += [None] * (len(case.tokens) - len(known))
    numbers = [fresh.take(1)[0] if u is None else u for u in known]
    draws = int(fresh.take(1)[0] * 2**32)
    return [case.judgement(rule, numbers, draws) for rule in case.fitting(rules)]


class _Case:
    def __init__(self, p: Any, q: Any, tokens: Sequence[TokenId], raw: Any):
        self.p = _rows("p", p)
        places, vocabulary = self.p.shape
        self.tokens = as_tokens("The draft is a list of token ids", tokens, vocabulary)
        length = len(self.tokens)
        self.q = None if q is None else _rows("q", q)
        self.raw = self.p if raw is None else _rows("raw", raw)
        refuse(
            (not 1 <= length <= LONGEST, f"A draft has 1 to {LONGEST} tokens, not {length}."),
            (
                places != length + 1,
                f"p has {places} rows; a draft of {length} tokens needs {length + 1}, one before "
                "each token and one after the last.",
            ),
            (
                self.q is not None and len(self.q) not in (length, length + 1),
                f"q must have {length} rows, one for each token, or one more for the token after "
                f"them, not {0 if self.q is None else len(self.q)}.",
            ),
            (
                any(x is not None and x.shape[1] != vocabulary for x in (self.q, self.raw))
                or len(self.raw) != places,
                "p, q and raw must be about one vocabulary, and raw must have as many rows as p.",
            ),
        )
        given = () if self.q is None else self.q  # it may have a row after the last token
        for i, (token, row) in enumerate(zip(self.tokens, given, strict=False)):
            if not row[token]:
                raise InputError(
                    f"Token {token} at place {i + 1} has q = 0, so it cannot have been drawn from "
                    "q; give the q that the draft was drawn from."
                )
        readings = Readings(self.raw.log(), 1)
        self.known: dict[Reading, Distribution] = {
            reading: Whole(row) for reading, row in zip(readings, self.p, strict=True)
        }
        self.drawn_from = [] if self.q is None else [Whole(row) for row in self.q]
        # Only at temperature 0 is every distribution certain, and then some rules read `raw`.
        self.warping = Warping(temperature=float((self.p == 1).sum() < len(self.p)))

    def fitting(self, rules: Collection[Rule | str]) -> list[Rule]:
        listed = isinstance(rules, Collection) and not isinstance(rules, str)
        if not (listed and all(isinstance(each, (Rule, str)) for each in rules)):
            raise InputError(f"Rules are given as a list of names, not {quoted(rules)}.")
        if not rules:
            return [rule for each in RULES.values() if not self.unfit(rule := each())]
        chosen = [part(RULES, "judge", each) if isinstance(each, str) else each for each in rules]
        if len({repr(rule) for rule in chosen}) < len(chosen):
            raise InputError("A rule is asked for twice with the same settings; ask once.")
        for rule in chosen:
            if why := self.unfit(rule):
                raise InputError(why)
        return chosen

    def unfit(self, rule: Rule) -> str:
        """Why a rule cannot judge this draft; "" if it can."""
        kind = Kind.CERTAIN if self.q is None else Kind.CHAIN
        if kind not in rule.judges:
            return f"The rule {rule.name} cannot judge {kind}; leave it out."
        if len(self.tokens) <= rule.window:
            return (
                f"The rule {rule.name} needs a draft longer than its window of {rule.window}; "
                "lengthen the draft or shorten the window."
            )
        if rule.beyond and (self.q is None or len(self.q) == len(self.tokens)):
            return f"The rule {rule.name} needs q after the draft too; give q as many rows as p."
        return ""

    def judgement(self, rule: Rule, numbers: Sequence[float], seed: int) -> Judgement:
        tests = numbers[::-1] if rule.backwards else numbers
        request, trials, tip = self.run(rule, _Numbers(tests, seed))
        drafted = [t for t in trials if t.fate in DRAFTED]
        by_count = [0.0] * (len(drafted) + 1)  # by the number of tokens kept, its chance
        ways = outcomes(lambda source: self.run(rule, _Ways(source, self.tokens), own=False))
        for chance, (_, tried, _) in ways:
            by_count[accepted(tried)] += chance
        chances = list(accumulate(reversed(by_count[1:])))[::-1]
        return Judgement(
            rule, accepted(drafted), request.tree.tokens[tip], drafted,
            [min(1.0, chance) for chance in chances],
        )  # fmt: skip

    def run(self, rule: Rule, source: Any, own: bool = True) -> tuple[Request, list[Trial], NodeId]:
        request = _Judging(source, self.warping, self.known, own)
        draft, node = Draft(request.tip), request.tip
        for token in self.tokens:
            draft.draws.append(Draw(request.tree.add(node, token), node, token))
            node = draft.draws[-1].node
        draft.q.update(zip(draft.nodes, self.drawn_from, strict=False))
        return request, *rule.judge(request, draft, list(self.known))


class _Judging(Request):
    """A request whose readings are warped to given rows.

    Args:
        source: its random source
        warping: its warping
        rows: from each reading to the target's distribution there
        own: whether the target's own token is drawn
    """

    def __init__(self, source: Any, warping: Warping, rows: dict[Reading, Distribution], own: bool):
        super().__init__([0], source=source, warping=warping, budget=2 * LONGEST)
        self._rows, self._own = rows, own

    def warp(self, reading: Reading) -> Distribution:
        return self._rows[reading]

    def sample(
        self, after: NodeId, fate: Fate, probs: Distribution, p: Distribution
    ) -> tuple[list[Trial], NodeId]:
        return super().sample(after, fate, probs, p) if self._own else ([], after)


class _Numbers(SeededSource):
    """Tests with the given random numbers in turn, and draws with a seed."""

    def __init__(self, tests: Sequence[float], seed: int):
        super().__init__(seed)
        self._tests = iter(tests)

    def accept(self, probability: float) -> tuple[bool, float]:
        u = next(self._tests)
        return u < probability, u


class _Ways:
    """Takes every way; all tokens that are not in the draft are one outcome."""

    def __init__(self, source: Branches, tokens: Sequence[TokenId]):
        self.accept, self._branch, self._tokens = source.accept, source.branch, {*tokens}

    def draw(self, probs: Distribution) -> list[TokenId]:
        known = [(x, probs[x]) for x in sorted(self._tokens)]
        other = next(i for i in range(len(known) + 1) if i not in self._tokens)
        return [self._branch([*known, (other, max(0.0, 1 - sum(m for _, m in known)))])]


def _rows(name: str, rows: Any) -> Probs:
    """Rows of probabilities in float64, each summing to one."""
    try:
        numbers = torch.as_tensor(rows).detach().to("cpu", torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name} must be rows of probabilities, not {quoted(rows)}.") from None
    sums = numbers.sum(-1, keepdim=True) if numbers.ndim == 2 else numbers
    if numbers.ndim != 2 or not ((numbers >= 0).all() and ((sums - 1).abs() < SUM).all()):
        raise InputError(f"{name} must be rows of probabilities, (places, V), each summing to one.")
    return numbers / sums
