"""Speculative decoding: exact for every draft length, also one that changes as it goes."""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import pytest

from decoders.distribution import Warping
from decoders.methods.budget import LONGEST, START, AutoLength
from decoders.methods.named import Speculative
from decoders.request import SeededSource
from decoders.testing.oracle import Watched, assert_exact, decode, output_law, ways
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate, Ledger

END = frozenset({1})


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_a_draft_equal_to_the_target_is_always_accepted(gamma):
    table = drawn(3).target
    for _, r in ways(Speculative(gamma), Situation(table, table, budget=4)):
        assert all(e.accepted == e.drafted for e in r.rounds)


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5])
def test_a_draft_leaves_room_for_the_targets_own_token(budget):
    situation = drawn(2, 1, budget=budget, warping=Warping(1.0, 2))
    for _, r in ways(Speculative(5), situation, limit=40_000):
        left = budget
        for e in r.rounds:
            assert e.drafted <= left - 1
            left -= len(e.tokens)
        assert left == 0


# ---- A draft length that changes


class Clocked(Watched):
    """Each way begins at the same time, so that it depends on nothing but its choices."""

    def __init__(self, *args, times, **options):
        options["ledger"] = Ledger(itertools.accumulate(itertools.cycle(times)).__next__)
        super().__init__(*args, **options)


@pytest.mark.parametrize(("speed", "end"), [(0, END), (1, frozenset()), (1e-9, END), (1e9, END)])
def test_auto_has_the_targets_law_whatever_the_clock_says(speed, end):
    """Bug: a clock too coarse to see a pass divided by zero seconds."""
    assert_exact(
        Speculative("auto"),
        drawn(3, 5, budget=4, warping=Warping(1.0, 2), end=end),
        request=partial(Clocked, times=(speed, 1, 0, speed * speed)),
    )


def test_auto_drafts_longer_where_drafts_are_accepted_and_cheap():
    table = drawn(4).target

    def lengths(draft, seconds):
        """Drafted tokens a round; a draft pass takes these seconds, a target pass one."""
        now, situation = [0.0], Situation(table, draft, budget=120)

        class Timed(Ledger):
            def charge(self, model):
                now[0] += {"draft": seconds, "target": 1.0}[model]
                super().charge(model)

        r = decode(Speculative("auto"), situation, SeededSource(0), ledger=Timed(lambda: now[0]))
        return [e.drafted for e in r.rounds]

    good, costly, bad = lengths(table, 0.01), lengths(table, 5.0), lengths(drawn(4, 7).draft, 0.2)
    assert good[0] == costly[0] == START
    assert max(good) == LONGEST
    assert set(costly[2:17]) == {0}  # speculation is off where it does not pay
    assert max(bad[-20:]) <= START


class Scripted:
    """A request of a call whose rounds take what a script says."""

    def __init__(self, shared, plain=1.0, target=1.1, draft=0.1, keeps=1.0, hesitates=False):
        self.request = SimpleNamespace(shared=shared, rounds=[], finished=None, left=10**6)
        self.length = AutoLength(self.request)
        self.seconds, self.keeps, self.hesitates = (plain, target, draft), keeps, hesitates

    def round(self) -> int:
        """Play one; how many tokens it was to draft."""
        length, (plain, target, draft) = self.length(), self.seconds
        drafted = 0 if self.hesitates else length
        self.request.rounds.append(
            SimpleNamespace(
                index=len(self.request.rounds), drafted=drafted,
                accepted=round(self.keeps * drafted), draft_calls=length,
                draft_seconds=draft * length, verify_seconds=target if length else plain,
            )
        )  # fmt: skip
        return length


def played(requests, rounds):
    """What each request was to draft in each round of all."""
    return [[each.round() for each in requests] for _ in range(rounds)]


@pytest.mark.parametrize("after", [0, 2, 3])
def test_what_rounds_without_a_draft_take_is_learned_whoever_ends_early(after):
    """If the first request ended before, the other drafted for ever, though that never paid."""
    shared = {}
    first, second = (Scripted(shared, draft=50.0) for _ in range(2))
    played([first, second], after)
    first.request.finished = "cancelled"
    assert sum(length > 0 for (length,) in played([second], 200)) < 10


def test_requests_that_follow_one_another_do_not_inherit_a_rest():
    """Each began a whole rest anew, so easy texts were never drafted for after a hard one."""
    shared = {}
    hard = Scripted(shared, draft=0.4, keeps=0.0)
    played([hard], 50)
    hard.request.finished = "budget"
    for _ in range(3):
        easy = Scripted(shared, draft=0.4)
        lengths = [length for (length,) in played([easy], 60)]
        easy.request.finished = "budget"
    assert sum(length > 0 for length in lengths) > 30
    assert len(easy.length.budget.members) == 1  # those that have ended are forgotten


def test_a_draft_that_hesitates_at_once_is_not_tried_in_every_round():
    """A trial that drafted nothing was followed by the next trial, and so on."""
    shared = {}
    slow = Scripted(shared, draft=3.0, keeps=0.0)
    played([slow], 20)
    slow.hesitates = True
    assert sum(length > 0 for (length,) in played([slow], 300)) < 8


# ---- Traps


def test_at_temperature_0_the_likeliest_token_alone_is_kept():
    """A rule that compares unwarped probabilities accepts drafts that are not the argmax."""
    situation = Situation(Rows(((0.5, 0.4, 0.1),)), Rows(((0.1, 0.8, 0.1),)), warping=Warping(0))
    assert_exact(Speculative(2), situation)


def test_an_end_token_in_the_middle_of_an_accepted_block():
    """Draft and target both want 0, then the end token 1: the block stops, without a bonus."""
    rows = Rows(((0.98, 0.01, 0.01), (0.01, 0.98, 0.01)))
    r = decode(
        Speculative(4),
        Situation(rows, rows, budget=9, end=END, warping=Warping(0)),
        SeededSource(0),
    )
    assert (r.output, r.finished) == ((0, 1), "end of sequence")
    assert [t.fate for t in r.rounds[0].trials] == [Fate.ACCEPTED] * 2


def test_lenience_at_temperature_0_in_a_text():
    """Target wants 0 (0.5), the draft 1 (0.4 there): kept with lenience 0.7, refused with 0.9."""
    target, draft = Rows(((0.5, 0.4, 0.1),)), Rows(((0.1, 0.8, 0.1),))
    situation = Situation(target, draft, budget=3, warping=Warping(0))
    assert output_law(Speculative(2, lenience=0.7), situation) == {(1, 1, 0): 1}
    assert output_law(Speculative(2, lenience=0.9), situation) == {(0, 0, 0): 1}


GATES = (0.6, 0.65, 0.7)  # between the least and the most of the bound on these tables


@pytest.mark.parametrize("ends", [*({"gate": g} for g in GATES), {"confidence": 0.6}], ids=str)
@pytest.mark.parametrize("rule", ["tokenwise", "match", "block", "multiround"])
def test_a_draft_that_stops_where_it_hesitates_leaves_the_targets_law(ends, rule):
    for seed in (0, 2):
        situation = drawn(3, seed, warping=Warping(0.8, 2), end=frozenset({2}))
        assert_exact(Speculative(2, rule=rule, **ends), situation)


def test_the_gate_stops_where_the_bound_on_acceptance_is_low():
    situation = drawn(3, 1, budget=30)
    lengths = {
        gate: [e.drafted for e in decode(Speculative(gate=gate), situation, SeededSource(0)).rounds]
        for gate in (0.0, *GATES, 1.0)
    }
    assert set(lengths[1.0]) == {0}
    assert max(lengths[0.0]) == 4
    assert len({sum(drafted) for drafted in lengths.values()}) > 3
    q = situation.draft(situation.prompt).softmax(-1)
    bound = 1 - math.sqrt(0.2 * -(q * q.log()).sum().item())
    for gate, stops in ((bound - 1e-6, False), (bound + 1e-6, True)):
        r = decode(Speculative(gate=gate), situation, SeededSource(0))
        assert (r.rounds[0].drafted == 0) == stops
