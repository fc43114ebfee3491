"""Draft lengths that follow what was measured: a budget of draft tokens for all requests of a call.

Source:
    Leviathan et al. 2023 (arXiv 2211.17192), sections 3.3 and 3.5, for one request.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from weakref import ref

from decoders.request import Request
from decoders.trace import Round


@dataclass
class CostLine:
    """Seconds as a line in the size of a pass, from measurements that fade."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        weight = 0.95
        if self.n > 3:
            y = min(y, 2 * self.at(x))  # a pause of the machine says nothing of a pass
        elif self.n and y < self.at(x) / 2:
            weight = 0.2  # then what was noted so far was such a pause
        old, new = (self.n, self.x, self.y, self.xx, self.xy), (1, x, y, x * x, x * y)
        faded = (weight * a + b for a, b in zip(old, new, strict=True))
        self.n, self.x, self.y, self.xx, self.xy = faded

    @property
    def spread(self) -> float:
        """The variance of the sizes; 0 if there is only one."""
        square = (self.x / self.n) ** 2
        variance = self.xx / self.n - square
        return variance if variance > 1e-6 * square else 0.0

    def at(self, x: float) -> float:
        mean, y, spread = self.x / self.n, self.y / self.n, self.spread
        slope = (self.xy / self.n - mean * y) / spread if spread else 0.0
        return max(y + max(slope, 0.0) * (x - mean), 0.05 * y)


START = 2  # tokens of one request until something is known
LONGEST = 16
PATIENCE = 32  # rounds of the first rest without drafts, times the number of requests
LONG = 128  # rounds of the longest rest, and of any where drafts would not even pay for easy text
EASY = 0.95  # the chance that a draft token is kept there
MARGIN = 1.06  # what drafts must gain: times vary, and early ones of plain rounds are too high
# Early rounds without a draft, to learn what those take: one call of the target, whose first pass
# after passes of several tokens takes longer than the others.
PLAIN = 8


@dataclass(frozen=True)
class Lengths:
    """Rounds as planned: what their passes hold.

    Attributes:
        size: places of the target's pass
        most: draft passes
        drafting: mean number of requests in a draft pass
        rounds: how many rounds it is for; one, if drafts pay
        usual: whether no draft model must first read what it has missed
    """

    size: float
    most: int
    drafting: float
    rounds: int = 1
    usual: bool = True


# How many places a round drafted, tokens or the layers of a draft of beams; how many of them were
# accepted; and how much of the next one the target has read already, from 0 to 1: of a layer
# that was kept in part, the share of its beams.
Count = tuple[int, int, float]


def tokens(entry: Round) -> Count:
    return entry.drafted, entry.accepted, 0.0


BEFORE = Lengths(0, 0, 0.0, rounds=0, usual=False)  # the first one


@dataclass(eq=False)
class AutoLength:
    """The draft length of one request, a part of its call's budget; it may be 0.

    It uses finished rounds alone, so the output keeps the target's law. But the budget depends on
    the clock and on the other requests of the call: above temperature 0, two runs with one seed may
    draft different lengths and so draw different (equally distributed) tokens.

    Attributes:
        request: the request
        count: counts the draft of a round
        start: places of a trial, when it is alone: fewer where a place costs more
        accepted: draft tokens kept, of rounds that fade; at first as if most had been
        tested: draft tokens kept or refused, likewise
        judged: rounds with drafts, likewise
        gained: how far ahead these left the target, likewise
        ahead: how far ahead the last round left it
        length: the length planned
        plan: the plan that it follows
        left: how many more rounds it follows it
        planned: how many rounds there were when it was last asked
    """

    request: Request
    count: Callable[[Round], Count] = tokens
    start: int = START
    accepted: float = 6.0
    tested: float = 8.0
    judged: float = 0.0
    gained: float = 0.0
    ahead: float = 0.0
    length: int = 0
    plan: Lengths = BEFORE
    left: int = 0
    planned: int = 0

    def __post_init__(self) -> None:
        self.budget: Budget = self.request.shared.setdefault(Budget, Budget())

    def __call__(self) -> int:
        budget, late = self.budget, self.plan is BEFORE
        if rounds := self.request.rounds:
            self.learn(rounds[-1])
        # Several rounds without a draft may be one call of the target.
        further = max(0, len(rounds) - self.planned - 1)
        self.left, self.planned = max(0, self.left - further), len(rounds)
        if not self.left:
            budget.join(self)
            others = [m.left for m in budget.live]
            # The first to come back plans for all.
            if self.plan is budget.plan or not others:
                budget.renew(self)
            self.plan = budget.plan
            # Who comes late rests no longer than the others.
            self.left = max(1, min(others)) if late and others else self.plan.rounds
        self.left -= 1
        return self.length if self.plan.most else 0

    def learn(self, entry: Round) -> None:
        drafted, accepted, ahead = self.count(entry)
        if drafted:
            self.budget.news = True
            self.accepted = 0.9 * self.accepted + accepted
            self.tested = 0.9 * self.tested + accepted + (accepted < drafted)
            self.judged, self.gained = 0.9 * self.judged + 1, 0.9 * self.gained + ahead
        # The first round includes the prompt, so its times say nothing about a step.
        if entry.index:
            self.budget.learn(self, entry)
        self.ahead = ahead

    @property
    def lead(self) -> float:
        """How far ahead of a plain round one with drafts usually begins."""
        return self.gained / self.judged if self.judged else 0.0


@dataclass(eq=False)
class Budget:
    """Shares draft tokens among the requests of a call, for the most tokens per second.

    Place i of a request's draft is worth the chance that it is kept, alpha^i. The worthiest places
    are taken, as many as make the ratio of expected tokens to expected seconds largest.

    Attributes:
        followers: a length for each request that follows the newest plan, or has ended since; weak,
            as each knows its request, which knows this
        plain: seconds of a round without drafts, by requests; several such rounds may be one call
            of the kernels
        target: seconds of the target's pass with drafts, by tokens
        draft: seconds of a draft pass, by requests
        plan: the newest plan
        timed: the plan whose times were noted last
        news: whether a draft was judged since lengths were weighed
        patience: rounds of the newest rest, were the text long enough; 0 while drafts pay
    """

    followers: list[ref[AutoLength]] = field(default_factory=list)
    plain: CostLine = field(default_factory=CostLine)
    target: CostLine = field(default_factory=CostLine)
    draft: CostLine = field(default_factory=CostLine)
    plan: Lengths = BEFORE
    timed: Lengths = BEFORE
    news: bool = True
    patience: int = 0

    @property
    def members(self) -> list[AutoLength]:
        return [member for each in self.followers if (member := each()) is not None]

    @property
    def live(self) -> Iterator[AutoLength]:
        """The members that follow the newest plan; one that has failed follows an older one."""
        return (m for m in self.members if m.plan is self.plan and not m.request.finished)

    def join(self, member: AutoLength) -> None:
        """Count a request in, which begins or was not in step."""
        self.followers = [ref(m) for m in (*(m for m in self.live if m is not member), member)]
        if member.plan is BEFORE:
            for other in self.live if self.plan.most else ():
                other.left = 0  # a length for fewer requests
            # Of a larger batch, the first rounds tell more; one request is enough to time a draft.
            share = len(self.members)
            member.length = member.start if share == 1 else 0
            member.accepted, member.tested = member.accepted / share, member.tested / share

    def learn(self, member: AutoLength, entry: Round) -> None:
        """Take note of a round's times, once: a member that waited for others' drafts has none."""
        plan = member.plan
        if entry.draft_calls != plan.most:
            return
        if not plan.most:
            if member is next(self.live, None) and not member.ahead:
                count = sum(not m.request.finished for m in self.members)
                self.plain.add(count, entry.verify_seconds)
        elif plan is not self.timed or len(self.followers) == 1:
            self.timed = plan
            self.target.add(plan.size, entry.verify_seconds)
            if plan.usual:
                self.draft.add(plan.drafting, entry.draft_seconds / entry.draft_calls)

    def renew(self, first: AutoLength) -> None:
        """Plan every member's length, once the first one is back from the plan before."""
        lengths, count, rounds = dict.fromkeys(self.members, 0), len(self.members), 1
        if not (self.target.y and self.draft.n):
            accepted = sum(first.count(entry)[1] for entry in first.request.rounds[-1:])
            trier = next((m for m in self.members if m.length), first)  # it has read its text
            lengths[trier] = 1 if count > 1 else min(LONGEST, trier.start + accepted)
        elif not self.plain.y:
            rounds = PLAIN
        elif self.news or self.plan.most:
            if not self.target.spread:  # one size says nothing of others
                self.target.add(count, self.plain.at(count))
            lengths, self.news = self._best(self._alphas()), False
            rounds = self._rounds(lengths)
        else:
            # Text may have become easier: one request tries, and ever less often while it has not.
            lengths[first] = first.start if count == 1 else 1
        usual = all(member.length for member, length in lengths.items() if length)
        for member, length in lengths.items():
            member.length = length
        most, drafts = max(lengths.values()), sum(lengths.values())
        size = count + drafts - sum(m.ahead for m in self.members)
        self.plan = Lengths(size, most, drafts / most if most else 0.0, rounds, usual)

    def _rounds(self, lengths: dict[AutoLength, int]) -> int:
        if any(lengths.values()):
            self.patience = 0
            return 1
        easy = self._best(dict.fromkeys(self.members, EASY))
        hopeless = self.target.n > 2.5 and not any(easy.values())  # one time may have been a pause
        # The trial of one request takes time of all, and pays only by what follows it.
        least = LONG if hopeless else PATIENCE * len(self.members)
        self.patience = min(max(2 * self.patience, least), LONG)
        left = max(m.request.left for m in self.members)
        return self.patience if left > 2 * self.patience else max(left, LONG)

    def _alphas(self) -> dict[AutoLength, float]:
        usual = sum(m.accepted for m in self.members) / sum(m.tested for m in self.members)
        return {m: (m.accepted + 3 * usual) / (m.tested + 3) for m in self.members}

    def _best(self, alphas: dict[AutoLength, float]) -> dict[AutoLength, int]:
        places = sorted(
            ((a**i, -i, m) for m, a in alphas.items() for i in range(1, LONGEST + 1)),
            key=lambda place: place[:2],
            reverse=True,
        )
        count = len(self.members)
        expected, seconds = float(count), 0.0
        ahead = sum(m.lead for m in self.members)
        lengths, best = dict.fromkeys(self.members, 0), dict.fromkeys(self.members, 0)
        drafting = [0] * (LONGEST + 1)  # requests in each draft pass
        rate = MARGIN * expected / self.plain.at(count)
        for size, (worth, depth, member) in enumerate(places, count + 1):
            drafts = drafting[-depth]
            seconds += self.draft.at(drafts + 1) - (self.draft.at(drafts) if drafts else 0.0)
            drafting[-depth] += 1
            lengths[member], expected = -depth, expected + worth
            if expected / (seconds + self.target.at(size - ahead)) > rate:
                rate, best = expected / (seconds + self.target.at(size - ahead)), dict(lengths)
        return best
