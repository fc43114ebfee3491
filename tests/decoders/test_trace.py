"""Rounds, trials and the ledger."""

import math

import pytest

from decoders.distribution import Warping
from decoders.methods.catalog import catalog
from decoders.methods.named import Speculative
from decoders.request import SeededSource
from decoders.testing.oracle import decode
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import DRAFTED, Fate, measure, perplexity, ratio

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
        (1, Fate.ACCEPTED, 0.5), (1, Fate.REJECTED, 0.7), (0, Fate.DISCARDED, None),
        (2, Fate.CORRECTED, None),
    ]  # fmt: skip
    for t in first.trials[:2]:
        assert (t.p, t.q, t.accept_probability) == pytest.approx((0.3, 0.5, 0.6))
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
    m = measure(kept, r.rounds, r.ledger, 2.0)
    assert (m.new_tokens, m.target_calls, m.drafted, m.tested, m.accepted) == (5, 2, 5, 4, 3)
    assert (m.acceptance_rate, m.alpha, m.block_efficiency) == (3 / 5, 3 / 4, 5 / 2)
    assert m.tokens_per_second == 2.5
    assert m.perplexity == pytest.approx((0.3 * 0.2 * 0.3 * 0.5 * 0.5) ** (-1 / 5))


def test_perplexity_is_e_to_the_mean_surprise():
    """Above 709 nats a token `exp` raises, which ended a whole batch."""
    assert perplexity([math.log(0.5), math.log(0.125)]) == pytest.approx(4)
    assert perplexity([]) is None
    assert ratio(1, 0) is None
    assert perplexity([-710.0, -800.0]) == perplexity([-math.inf]) == math.inf


@pytest.mark.parametrize("name", catalog)
def test_every_round_of_every_decoder_is_complete(name):
    """The text is the rounds put together; each uniform number decided what the trace reports."""
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
        for t in (r.trials[node] for node in r.tree.lineage(r.answer, 1)):
            own = r.rounds[t.round]
            assert t.node in own.nodes or any(t is x for x in own.trials)


def test_a_perplexity_beyond_what_a_float_holds():
    """Above 709 nats a token `exp` raises, which ended a whole batch."""
    assert perplexity([-710.0, -800.0]) == math.inf
    assert perplexity([-math.inf]) == math.inf
