"""Rounds, trials and the ledger."""

import gc
import math
import pickle

import pytest

from decoders.distribution import Small, Warping, Whole
from decoders.methods.catalog import catalog
from decoders.methods.named import Speculative
from decoders.process import light_heap
from decoders.randomness import SeededSource
from decoders.testing.oracle import decode
from decoders.testing.situations import Rows, Situation, drawn, logits
from decoders.trace import DRAFTED, KEPT, Fate, Ledger, Round, Trial

TARGET = (0.5, 0.3, 0.2)
DRAFT = (0.25, 0.5, 0.25)


class Script:
    """The uniform numbers and the drawn tokens, fixed beforehand."""

    def __init__(self, tokens, numbers):
        self.tokens, self.numbers = iter(tokens), iter(numbers)

    def draw(self, probs, count=1):
        return [next(self.tokens) for _ in range(count)]

    def chain(self, steps):
        return lambda probs: next(self.tokens)

    def accept(self, probability):
        u = next(self.numbers)
        return u < probability, u


def test_a_scripted_round_counted_by_hand():
    """Drafts 1, 1, 0: the first passes 0.3 / 0.5 with u = 0.5, the second fails it with u = 0.7.

    The third is not looked at."""
    situation = Situation(Rows((TARGET,)), Rows((DRAFT,)), budget=5)
    r = decode(Speculative(3), situation, Script([1, 1, 0, 2, 1, 0, 0], [0.5, 0.7, 0.0, 0.0]))
    first, second = r.rounds
    assert [(t.token, t.fate, t.u) for t in first.trials] == [
        (1, Fate.ACCEPTED, 0.5),
        (1, Fate.REJECTED, 0.7),
        (0, Fate.DISCARDED, None),
        (2, Fate.CORRECTED, None),
    ]
    assert [(t.p, t.q, t.accept_probability) for t in first.trials[:2]] == [
        pytest.approx((0.3, 0.5, 0.6))
    ] * 2
    assert (first.trials[2].p, first.trials[2].q) == (None, None)
    assert first.trials[3].p == pytest.approx(0.2)
    assert (first.drafted, first.tested, first.accepted) == (3, 2, 1)
    assert (first.tokens, first.keep, first.target_calls, first.draft_calls) == ([1, 2], 0, 1, 3)
    assert [t.fate for t in second.trials] == [Fate.ACCEPTED, Fate.ACCEPTED, Fate.BONUS]
    assert (second.drafted, second.tested, second.accepted, second.keep) == (2, 2, 2, 2)
    assert r.output == (1, 2, 1, 0, 0)
    kept = [r.trials[n] for n in r.tree.lineage(r.answer, 1)]
    assert [t.round for t in kept] == [0, 0, 1, 1, 1]
    assert [t.log_p for t in kept] == pytest.approx([math.log(TARGET[t]) for t in r.output])
    for t in kept:
        ids, probs = zip(*t.alternatives, strict=True)
        assert (ids, probs) == ((0, 1, 2), pytest.approx(TARGET))


@pytest.mark.parametrize("name", catalog)
def test_every_round_of_every_decoder_is_complete(name):
    """Each emitted token has its round, its raw log p and the five likeliest tokens there.

    The text is the rounds put together; each uniform number decided what the trace reports."""
    for seed in range(3):
        situation = drawn(7, seed, budget=12, warping=Warping(0.9, 4), end=frozenset({6}))
        r = decode(catalog[name](), situation, SeededSource(seed))
        text = []
        for i, e in enumerate(r.rounds):
            assert e.index == i
            assert e.keep <= len(text)
            text = text[: e.keep] + e.tokens
            assert e.tokens == [r.tree.tokens[n] for n in e.nodes]
            for t in e.trials:
                assert (t.token, t.parent) == (r.tree.tokens[t.node], r.tree.parents[t.node])
                # FLy's window overrules tests.
                if t.u is not None and t.accept_probability is not None and name != "fly":
                    assert (t.u < t.accept_probability) == (t.fate == Fate.ACCEPTED)
            assert e.drafted == sum(t.fate in DRAFTED for t in e.trials) >= e.tested >= e.accepted
            assert e.verify_seconds > 0
        assert tuple(text) == r.output
        for node in r.tree.lineage(r.answer, 1):
            t, row = (
                r.trials[node],
                logits(situation.target, r.path(r.tree.parents[node])).log_softmax(-1),
            )
            assert t.node in r.rounds[t.round].nodes or any(
                t is x for x in r.rounds[t.round].trials
            )
            assert t.log_p == pytest.approx(row[t.token].item())
            assert [i for i, _ in t.alternatives] == row.topk(5).indices.tolist()
            assert [p for _, p in t.alternatives] == pytest.approx(
                row.topk(5).values.exp().tolist()
            )


def test_fates_are_either_kept_or_drafted_or_both():
    assert {Fate.ACCEPTED} == KEPT & DRAFTED
    assert set(Fate) == KEPT | DRAFTED


def test_counts_look_at_draft_tokens_only():
    fates = [
        Fate.ACCEPTED,
        Fate.REJECTED,
        Fate.DISCARDED,
        Fate.CORRECTED,
        Fate.BONUS,
        Fate.SAMPLED,
        Fate.SEARCHED,
    ]
    e = Round(0, [Trial(i, 0, 0, fate) for i, fate in enumerate(fates)])
    assert (e.drafted, e.tested, e.accepted) == (3, 2, 1)


@pytest.mark.parametrize("name", ["spectr", "specinfer", "mcss", "speculative", "lookup"])
def test_trials_that_nobody_has_looked_at_hold_no_distributions(name):
    """One has a number for every token of the vocabulary, and a tree many of them.

    And a round can be sent to another process."""

    with light_heap():  # the collector sees what is made in here
        situation = drawn(7, 1, budget=12)
        rounds = decode(catalog[name](), situation, SeededSource(1), whole=True).rounds
        gc.collect()
        made = gc.get_objects()
    assert any(thing is rounds[0] for thing in made)
    assert not any(type(thing) in (Small, Whole) for thing in made)
    assert [pickle.loads(pickle.dumps(e)).trials for e in rounds] == [e.trials for e in rounds]


def test_time_is_charged_to_drafting_and_verifying():
    """The rule's own time, after the last pass, belongs to verifying."""
    now = iter([0.0, 2.0, 5.0, 6.0, 7.0, 7.5])
    ledger, first, second = Ledger(lambda: next(now)), Round(0, []), Round(1, [])
    ledger.start()
    ledger.charge("draft")
    ledger.charge("target")
    ledger.settle(first)
    assert (first.draft_seconds, first.verify_seconds, ledger.seconds) == (2.0, 4.0, 6.0)
    ledger.charge("draft")
    ledger.settle(second)
    assert (second.draft_seconds, second.verify_seconds, ledger.seconds) == (1.0, 0.5, 7.5)


def test_a_round_has_the_passes_since_the_last_one():
    ledger, first, second = Ledger(), Round(0, []), Round(1, [])
    ledger.start()
    for model in ("draft", "draft", "target"):
        ledger.count(model)
    ledger.settle(first)
    ledger.count("target")
    ledger.settle(second)
    assert [(e.draft_calls, e.target_calls) for e in (first, second)] == [(2, 1), (0, 1)]
    assert (ledger.draft_calls, ledger.target_calls) == (2, 2)


def test_a_request_that_never_started_took_no_time():
    assert Ledger().seconds == 0.0
