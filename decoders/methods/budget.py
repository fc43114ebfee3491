"""Draft lengths that follow what was measured: a budget of draft tokens for all requests of a call.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), sections 3.3 and 3.5, for one request.
"""

import math
from dataclasses import dataclass, field

from decoders.request import Request
from decoders.trace import Round

START = 4  # of one request until something is known
LONGEST = 16
PATIENCE = 16  # rounds without a draft before the first trial of one


@dataclass
class Line:
    """Seconds as a line in the size of a pass, from measurements that fade."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        if self.n > 3:
            y = min(y, 2 * self.at(x))  # a pause of the machine says nothing of a pass
        old, new = (self.n, self.x, self.y, self.xx, self.xy), (1, x, y, x * x, x * y)
        faded = (0.95 * a + b for a, b in zip(old, new, strict=True))
        self.n, self.x, self.y, self.xx, self.xy = faded

    def at(self, x: float) -> float:
        mean, y = self.x / self.n, self.y / self.n
        spread = self.xx / self.n - mean * mean
        slope = (self.xy / self.n - mean * y) / spread if spread > 1e-6 * mean * mean else 0.0
        return max(y + max(slope, 0.0) * (x - mean), 0.05 * y)


@dataclass(frozen=True)
class Sent:
    """A round as planned: what its passes hold.

    Attributes:
        tokens: tokens of the target's pass
        most: draft passes
        drafting: mean number of requests in a draft pass
    """

    tokens: int
    most: int
    drafting: float


@dataclass(eq=False)
class AutoLength:
    """The draft length of one request, a part of its call's budget; it may be 0.

    It uses finished rounds alone, so the output keeps the target's law. But the budget depends on
    the clock and on the other requests of the call: above temperature 0, two runs with one seed may
    draft different lengths and so draw different (equally distributed) tokens.

    Attributes:
        request: the request
        accepted: draft tokens kept, of rounds that fade; at first as if most had been
        tested: draft tokens kept or refused, likewise
        length: the length planned
        idle: rounds without a draft since the last one
        patience: rounds without a draft before one is tried
        planned: the plan that it followed last
        sent: the same if the last round was as planned
    """

    request: Request
    accepted: float = 6.0
    tested: float = 8.0
    length: int = START
    idle: int = 0
    patience: int = PATIENCE
    planned: Sent | None = None
    sent: Sent | None = None

    def __post_init__(self) -> None:
        self.budget: Budget = self.request.shared.setdefault(Budget, Budget())
        self.budget.members.append(self)
        # Of a larger batch, the first rounds tell more.
        self.accepted /= len(self.budget.members)
        self.tested /= len(self.budget.members)

    def __call__(self) -> int:
        rounds = self.request.rounds
        if rounds:
            self.learn(rounds[-1])
        if self.planned is self.budget.sent:  # the first to come back plans for all
            self.budget.plan(len(rounds))
        self.planned = self.sent = self.budget.sent
        length = self.length
        if length:
            self.idle, self.patience = 0, PATIENCE
            return length
        self.idle += 1
        if self.idle < self.patience or self is not self.budget.members[0]:
            return 0
        # Text may have become easier: one request tries, since the draft model must read what it
        # has missed, and ever less often while it has not.
        self.idle, self.patience, self.sent = 0, 2 * self.patience, None
        return 2

    def learn(self, entry: Round) -> None:
        """Take note of the last round."""
        if entry.drafted:
            self.budget.news = True
            refused = entry.accepted < entry.drafted
            self.accepted = 0.9 * self.accepted + entry.accepted
            self.tested = 0.9 * self.tested + entry.accepted + refused
        # The first round includes the prompt, so its times say nothing about a step.
        if self.sent and entry.index:
            self.budget.learn(self.sent, entry)

    def alpha(self, usual: float) -> float:
        return (self.accepted + 3 * usual) / (self.tested + 3)


@dataclass(eq=False)
class Budget:
    """Shares draft tokens among the requests of a call, for the most tokens per second.

    Place i of a request's draft is worth the chance that it is kept, alpha^i. The worthiest places
    are taken, as many as make the ratio of expected tokens to expected seconds largest.

    Attributes:
        members: a length for each request that has begun
        sent: the round as planned last
        timed: the round whose times were noted last
        news: whether a draft was judged since the last plan
    """

    members: list[AutoLength] = field(default_factory=list)
    target: Line = field(default_factory=Line)
    draft: Line = field(default_factory=Line)
    sent: Sent | None = None
    timed: Sent | None = None
    news: bool = True

    def learn(self, sent: Sent, entry: Round) -> None:
        """Take note of a round's times, once. A member that waited for others' drafts has none."""
        if sent is not self.timed and entry.draft_calls == sent.most:
            self.timed = sent
            self.target.add(sent.tokens, entry.verify_seconds)
            if sent.most:
                self.draft.add(sent.drafting, entry.draft_seconds / entry.draft_calls)

    def plan(self, rounds: int) -> None:
        """Set every member's length; those that have ended are dropped."""
        self.members = [m for m in self.members if not m.request.finished]
        if self.sent and not self.sent.most and not self.news:  # as before
            self.sent = Sent(len(self.members), 0, 0.0)
            return
        lengths = dict.fromkeys(self.members, round(START / math.sqrt(len(self.members))))
        self.news = rounds == 2
        if self.news:  # what is a pass without drafts?
            lengths = dict.fromkeys(self.members, 0)
        elif self.target.y and self.draft.y:
            lengths = self._best()
        for member, length in lengths.items():
            member.length = length
        most, drafts = max(lengths.values()), sum(lengths.values())
        self.sent = Sent(len(lengths) + drafts, most, drafts / most if most else 0.0)

    def _best(self) -> dict[AutoLength, int]:
        usual = sum(m.accepted for m in self.members) / sum(m.tested for m in self.members)
        alphas = {m: m.alpha(usual) for m in self.members}
        places = sorted(
            ((a**i, -i, m) for m, a in alphas.items() for i in range(1, LONGEST + 1)),
            key=lambda place: place[:2],
            reverse=True,
        )
        count = len(self.members)
        expected, seconds = float(count), 0.0
        lengths, best = dict.fromkeys(self.members, 0), dict.fromkeys(self.members, 0)
        drafting = [0] * (LONGEST + 1)  # requests in each draft pass
        rate = expected / self.target.at(count)
        for tokens, (worth, depth, member) in enumerate(places, count + 1):
            drafts = drafting[-depth]
            seconds += self.draft.at(drafts + 1) - (self.draft.at(drafts) if drafts else 0.0)
            drafting[-depth] += 1
            lengths[member], expected = -depth, expected + worth
            if expected / (seconds + self.target.at(tokens)) > rate:
                rate, best = expected / (seconds + self.target.at(tokens)), dict(lengths)
        return best
