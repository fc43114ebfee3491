"""Figures of a scripted run, computed by hand."""

import math

import pytest

from decoders.methods.named import Speculative
from decoders.testing.oracle import decode
from decoders.testing.situations import Rows, Situation
from decoders.trace import measure, perplexity, ratio
from tests.decoders.test_trace import DRAFT, TARGET, Script


def test_perplexity_is_e_to_the_mean_surprise():
    assert perplexity([math.log(0.5), math.log(0.125)]) == pytest.approx(4)
    assert perplexity([]) is None
    assert ratio(1, 0) is None


def test_a_perplexity_beyond_what_a_float_holds():
    """Above 709 nats a token `exp` raises, which ended a whole batch."""
    assert perplexity([-710.0, -800.0]) == math.inf
    assert perplexity([-math.inf]) == math.inf


def test_a_scripted_run_measured_by_hand():
    situation = Situation(Rows((TARGET,)), Rows((DRAFT,)), budget=5)
    r = decode(Speculative(3), situation, Script([1, 1, 0, 2, 1, 0, 0], [0.5, 0.7, 0.0, 0.0]))
    kept = [r.trials[n] for n in r.tree.lineage(r.answer, r.tree.prompt_length)]
    m = measure(kept, r.rounds, r.ledger, 2.0)
    assert (m.new_tokens, m.target_calls, m.drafted, m.tested, m.accepted) == (5, 2, 5, 4, 3)
    assert (m.acceptance_rate, m.alpha, m.block_efficiency, m.tokens_per_second) == (
        3 / 5,
        3 / 4,
        5 / 2,
        2.5,
    )
    assert m.perplexity == pytest.approx((0.3 * 0.2 * 0.3 * 0.5 * 0.5) ** (-1 / 5))
