"""Speculative decoding: exact for every draft length, also one that changes as it goes."""

import itertools
import math
from functools import partial
from types import SimpleNamespace
from weakref import ref

import pytest

from decoders import generate
from decoders.distribution import Warping
from decoders.methods.budget import LONG, LONGEST, PLAIN, START, AutoLength, Budget
from decoders.methods.named import Speculative
from decoders.randomness import SeededSource
from decoders.testing.oracle import (
    Watched,
    assert_exact,
    decode,
    distance,
    output_law,
    ways,
)
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate, Ledger
from tests.models import build_pair

END = frozenset({1})
WARPINGS = [
    Warping(),
    Warping(0.6),
    Warping(1.2, 2),
    Warping(1.0, 0, 0.8),
    Warping(0.7, 3, 0.9),
    Warping(0),
]


@pytest.mark.parametrize("end", [frozenset(), END], ids=["no end", "end"])
@pytest.mark.parametrize("warping", WARPINGS, ids=repr)
@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_the_output_has_the_targets_law(gamma, warping, end):
    assert_exact(Speculative(gamma), drawn(3, gamma, warping=warping, end=end))


def test_a_draft_of_three_within_a_longer_text():
    assert_exact(Speculative(3), drawn(3, 9, budget=5, warping=Warping(0.8, 2), end=END))


@pytest.mark.parametrize("gamma", [1, 2, 3])
def test_a_draft_equal_to_the_target_is_always_accepted(gamma):
    table = drawn(3).target
    for _, r in ways(Speculative(gamma), Situation(table, table, budget=4)):
        assert all(e.accepted == e.drafted for e in r.rounds)


def test_65_tokens_with_a_perfect_draft_take_13_target_calls():
    table = drawn(5).target
    assert (
        decode(
            Speculative(4), Situation(table, table, budget=65), SeededSource(0)
        ).ledger.target_calls
        == 13
    )


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5])
def test_a_draft_leaves_room_for_the_targets_own_token(budget):
    for _, r in ways(
        Speculative(5), drawn(2, 1, budget=budget, warping=Warping(1.0, 2)), limit=40_000
    ):
        left = budget
        for e in r.rounds:
            assert e.drafted <= left - 1
            left -= len(e.tokens)
        assert left == 0


def test_lenience_changes_the_law():
    assert distance(Speculative(2, lenience=0.5), drawn(3), law="target") > 0.01


# ---- A draft length that changes


class Clocked(Watched):
    """Each way begins at the same time, so that it depends on nothing but its choices."""

    def __init__(self, *args, times, **options):
        options["ledger"] = Ledger(itertools.accumulate(itertools.cycle(times)).__next__)
        super().__init__(*args, **options)


@pytest.mark.parametrize("speed", [0, 1, 1e-9, 1e9])
@pytest.mark.parametrize("end", [frozenset(), END], ids=["no end", "end"])
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


class Neighbour(AutoLength):
    """It follows every plan."""

    def __getattribute__(self, name):
        return (
            super().__getattribute__("budget").plan
            if name == "plan"
            else super().__getattribute__(name)
        )


class Accompanied(Clocked):
    """Shares its budget with a request that keeps most of its drafts, or hardly any."""

    def __init__(self, *args, kept, speed, **options):
        other = Watched((0,), source=SeededSource(0), warping=Warping(), budget=9, shared={})
        neighbour = Neighbour(other, accepted=kept, tested=20.0)
        neighbour.budget.members.append(neighbour)
        times = speed, 1, 0.5, speed
        super().__init__(*args, times=times, **options, shared=other.shared)


@pytest.mark.parametrize("kept", [1.0, 19.0])
@pytest.mark.parametrize("speed", [1, 1e-3, 1e3])
def test_auto_has_the_targets_law_whatever_its_neighbours_keep(kept, speed):
    assert_exact(
        Speculative("auto"),
        drawn(2, 5, budget=5),
        request=partial(Accompanied, kept=kept, speed=speed),
        limit=60_000,
    )


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


def test_one_slow_round_at_first_is_forgotten():
    """A pause in the first round that counted ended drafts for the whole call."""
    request = Scripted({}, draft=0.01)
    played([request], 1)
    request.seconds = (1.0, 30.0, 0.01)
    played([request], 1)
    request.seconds = (1.0, 1.1, 0.01)
    assert min(length for (length,) in played([request], 300)[200:]) > 0


def test_a_request_that_has_failed_is_not_planned_for():
    """It never came back, and every trial was its."""
    shared = {}
    failed, other = (Scripted(shared) for _ in range(2))
    played([failed, other], 8)
    played([other], 5)
    assert failed.length not in other.length.budget.live
    assert other.round() > 0


def test_auto_tries_a_draft_ever_less_often_while_none_pays():
    now, times = [0.0], {"target": 1.0}

    class Timed(Ledger):
        def charge(self, model):
            now[0] += times[model]
            super().charge(model)

    def tried(seconds):
        """The rounds, after the first ones, in which a draft was tried."""
        now[0], situation = 0.0, Situation(drawn(4).target, drawn(4, 7).draft, budget=240)
        times["draft"] = seconds
        r = decode(Speculative("auto"), situation, SeededSource(0), ledger=Timed(lambda: now[0]))
        return [e.index for e in r.rounds[3:] if e.drafted]

    costly = tried(1.5)
    gaps = [b - a for a, b in itertools.pairwise(costly)]
    assert gaps == sorted(gaps)
    assert 1 < len(costly) < 10
    assert len(tried(5.0)) < len(costly)  # it would not even pay for easy text


@pytest.mark.parametrize("requests", [1, 4])
def test_nothing_is_tried_for_the_last_tokens_of_a_long_text(requests):
    """A rest of the longest kind was no longer than usual, so a trial came before the end."""
    shared, tokens = {}, 300
    batch = [Scripted(shared, draft=1.5, keeps=0.0) for _ in range(requests)]
    tried = []
    for i in range(tokens):
        for each in batch:
            each.request.left = tokens - i
        (lengths,) = played(batch, 1)
        if i > 20 and any(lengths):
            tried.append(i)
    assert all(tokens - i > LONG for i in tried)


def test_the_more_requests_the_longer_they_rest_between_trials():
    """Four requests waited for the trials of one as often as one waits for its own."""

    def rest(count):
        shared = {}
        requests = [Scripted(shared, draft=1.5, keeps=0.0) for _ in range(count)]
        lengths = [sum(each) for each in played(requests, 300)]
        first = next(i for i, tried in enumerate(lengths) if not tried)
        return next(i for i, tried in enumerate(lengths) if i > first and tried) - first

    alone, four = rest(1), rest(4)
    assert four > 2 * alone


def test_a_batch_learns_what_drafts_take_from_one_request():
    """All drafted in the first rounds, for a fortieth of the whole time where none pays."""
    shared = {}
    requests = [Scripted(shared, draft=0.5, target=1.6) for _ in range(5)]
    first, second, *others = played(requests, 20)
    assert first == [START, 0, 0, 0, 0]
    assert second == [1, 0, 0, 0, 0]
    assert not any(map(any, others))


class Late(Scripted):
    """Its first draft waits until the draft model has read its text."""

    def round(self):
        drafted = any(entry.draft_calls for entry in self.request.rounds)
        self.seconds = *self.seconds[:2], (0.01 if drafted else 9.0)
        return super().round()


def test_what_a_draft_model_has_missed_is_no_part_of_what_a_draft_takes():
    """The seconds in which it read that were taken for a draft's, which then did not pay."""
    shared = {}
    requests = [Late(shared, target=1.01) for _ in range(3)]
    lengths = played(requests, 12)
    assert requests[0].length.budget.draft.at(1) == pytest.approx(0.01)
    assert min(lengths[-1]) > 0


@pytest.mark.parametrize(("seconds", "pays"), [(1.75, False), (1.6, True)])
def test_what_gains_a_little_is_not_drafted(seconds, pays):
    """Times vary: drafts that paid by 2%, as measured, lost as much just as often."""
    request = Watched((0,), source=SeededSource(0), warping=Warping(), budget=9, shared={})
    length = AutoLength(request, accepted=80.0, tested=100.0)
    budget = request.shared[Budget]
    budget.followers.append(ref(length))
    budget.plain.add(1, 1.0)
    budget.target.add(2, seconds)
    budget.target.add(17, seconds + 15)
    budget.draft.add(1, 1e-3)
    budget.renew(length)
    assert (length.length > 0) == pays


@pytest.mark.parametrize("before", range(4 + PLAIN, 16 + PLAIN))
def test_who_joins_a_request_that_drafts_waits_for_one_round(before):
    """It followed a plan for one request, without a draft, for up to seven rounds."""
    shared = {}
    requests = [Scripted(shared, target=1.01, draft=0.01) for _ in range(2)]
    played(requests[:1], before)
    assert requests[0].length.plan.most
    joint = played(requests, 3)
    assert joint[0][1] == 0
    assert min(joint[-1]) > 0


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


def test_a_stop_string_in_the_middle_of_an_accepted_block_drops_what_was_behind_it():
    rows = Rows(((0.98, 0.02),))
    situation = Situation(rows, rows, budget=9, warping=Warping(0))
    r = decode(Speculative(4), situation, SeededSource(0), stops=lambda tokens: len(tokens) == 2)
    assert (r.output, r.finished) == ((0, 0), "stop string")
    assert (r.rounds[0].drafted, r.rounds[0].accepted) == (2, 2)


def test_lenience_at_temperature_0_in_a_text():
    """Target wants 0 (0.5), the draft 1 (0.4 there): kept with lenience 0.7, refused with 0.9."""
    situation = Situation(
        Rows(((0.5, 0.4, 0.1),)), Rows(((0.1, 0.8, 0.1),)), budget=3, warping=Warping(0)
    )
    assert output_law(Speculative(2, lenience=0.7), situation) == {(1, 1, 0): 1}
    assert output_law(Speculative(2, lenience=0.9), situation) == {(0, 0, 0): 1}


@pytest.mark.parametrize("confidence", [0.4, 0.6, 0.8])
@pytest.mark.parametrize("seed", range(3))
def test_a_draft_that_stops_where_it_hesitates_leaves_the_targets_law(confidence, seed):
    situation = drawn(3, seed, warping=Warping(0.8, 2), end=frozenset({2}))
    assert_exact(Speculative(2, confidence=confidence), situation)


GATES = (0.6, 0.65, 0.7)  # between the least and the most of the bound on these tables


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("rule", ["tokenwise", "match", "block", "traversal", "kseq", "multiround"])
def test_a_gate_on_the_entropy_leaves_the_targets_law(gate, rule):
    for seed in range(3):
        situation = drawn(3, seed, warping=Warping(0.8, 2), end=frozenset({2}))
        assert_exact(Speculative(2, gate=gate, rule=rule), situation)


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


def test_its_length_follows_the_confidence():
    # behind one token and two, not behind three
    sure_once = Rows(((0.05, 0.95), (0.05, 0.95), (0.4, 0.6)))
    r = decode(
        Speculative(confidence=0.7), Situation(sure_once, sure_once, budget=9), SeededSource(0)
    )
    assert [entry.drafted for entry in r.rounds[:3]] == [2, 0, 0]


def test_auto_in_a_batch_is_greedy_at_temperature_0():
    pair, prompts = build_pair(), [[5, 9, 3] * 4, [1, 2, 3], [4] * 9, [7]]
    options = {"max_new_tokens": 24, "temperature": 0.0, "ignore_eos": True}
    auto = generate(pair, prompts, Speculative("auto"), max_batch=3, **options)
    assert [r.tokens for r in auto] == [
        generate(pair, p, "greedy", **options).tokens for p in prompts
    ]
