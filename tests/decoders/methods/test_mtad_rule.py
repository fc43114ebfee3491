"""MTAD's rule on scripted drafts."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from decoders.distribution import Warping
from decoders.methods.mtad import joint_ratios, keep_longest
from decoders.reading import Readings
from decoders.testing import mutant
from decoders.testing.oracle import Source, Watched
from decoders.testing.situations import WHOLE
from decoders.theory import mtad_kept_length
from decoders.trace import Fate

NEVER = -math.inf


def judge(
    p, q, threshold, *, warped=True, warping=WHOLE, rule=keep_longest, end=frozenset(), path=None
):
    """The trials for a draft, given the probability rows of target and draft.

    Its tokens are 0 unless `path` gives others."""
    path = path or [0] * len(q)
    request = Watched([0], source=Source(), warping=warping, budget=20, end_tokens=end)
    nodes, node = [], request.tip
    for token in path:
        node = request.tree.add(node, token)
        nodes.append(node)
    rows = (Readings(torch.tensor(x, dtype=torch.float64).log(), 2) for x in (p, q))
    return rule(request, nodes, *rows, threshold, warped)[0]


def two(*probs):
    return [[x, 1 - x] for x in probs]


def kept(*args, **options):
    return sum(t.fate == Fate.ACCEPTED for t in judge(*args, **options))


def test_the_longest_passing_prefix_is_kept_though_a_shorter_one_failed():
    """r = 0.2, 0.05, 0.4, 0.1: prefixes 1 and 3 pass 0.15, and 3 is kept."""
    p, q = two(0.1, 0.2, 0.8, 0.1, 0.5), two(0.5, 0.8, 0.1, 0.4)
    trials = judge(p, q, 0.15)
    assert [t.accept_probability for t in trials[:4]] == pytest.approx([0.2, 0.05, 0.4, 0.1])
    assert [t.fate for t in trials] == [*[Fate.ACCEPTED] * 3, Fate.REJECTED, Fate.CORRECTED]
    assert [(t.p, t.q) for t in trials[:4]] == [
        pytest.approx(x) for x in [(0.1, 0.5), (0.2, 0.8), (0.8, 0.1), (0.1, 0.4)]
    ]
    assert trials[4].parent == trials[2].node


NON_MONOTONE = two(0.1, 0.2, 0.8, 0.1, 0.5), two(0.5, 0.8, 0.1, 0.4), 0.15
MISTAKES = {
    "eta is j, as printed": ("passing[-1] + 1 if", "tokens[passing[-1]] if"),
    "eta starts at -1, as printed": ("else 0\n    trials", "else -1\n    trials"),
    "stops at the first failure": (
        "passing[-1] + 1 if",
        "sum(a == b for a, b in enumerate(passing)) if",
    ),
    "ratio upside down": ("ratio += p - q", "ratio += q - p"),
    "token by token": ("ratio += p - q", "ratio = p - q"),
}


@pytest.mark.parametrize("edit", MISTAKES.values(), ids=MISTAKES)
def test_mistakes_in_the_rule_are_caught(edit):
    """Algorithm 1 prints `eta <- j`, a token instead of a length.

    Source:
        Qin et al. 2024, Optimized multi-token joint decoding (arXiv 2407.09722), algorithm 1
    """
    wrong = mutant(keep_longest, edit)
    cases = [NON_MONOTONE, (two(0.1, 0.5), two(0.9), 0.5)]
    try:
        found = [kept(*case, rule=wrong) for case in cases] + [
            judge(*cases[1], rule=wrong)[-1].parent
        ]
    except (IndexError, RuntimeError):
        return  # a crash is caught as well
    assert found != [3, 0, 0]
    assert [kept(*case) for case in cases] + [judge(*cases[1])[-1].parent] == [3, 0, 0]


@pytest.mark.parametrize("warped", [True, False])
def test_threshold_1_keeps_nothing_and_0_everything_possible(warped):
    p, q = two(0.9, 1e-9, 0.5, 0.5), two(0.1, 0.9, 0.9)
    assert kept(p, q, 1.0, warped=warped) == 0
    assert kept(p, q, 0.0, warped=warped) == 3
    assert kept(two(0.9, 0.0, 0.5, 0.5), q, 0.0, warped=warped) == 1


def test_threshold_0_keeps_a_draft_whose_ratio_is_below_the_smallest_float():
    """Bug: the ratio was compared as a number, and e^-1000 is 0: a possible draft was refused.

    Now it is compared in logs."""
    p, q = two(*[1e-200] * 4, 0.5), two(*[0.9] * 4)
    assert kept(p, q, 0.0) == 4


def test_equal_models_keep_everything_below_threshold_1():
    rows = two(0.3, 0.01, 0.99)
    for warped in (True, False):
        assert kept([*rows, [0.5, 0.5]], rows, 0.999999, warped=warped, warping=Warping(0.5)) == 3


def test_impossible_tokens_in_either_model():
    """p = 0 fails this and every longer prefix, also if q is 0; q = 0 < p counts as a factor of
    1."""
    log_p = [-1.0, -2.0, NEVER, -1.0]
    assert joint_ratios(log_p, [-1.5, NEVER, -1.0, -9.0]) == [0.5, 0.5, NEVER, NEVER]
    assert joint_ratios(log_p, [-1.5, -2.0, NEVER, NEVER]) == [0.5, 0.5, NEVER, NEVER]


def test_warping_decides_which_probabilities_are_compared():
    """Top-k 1 makes the target certain of token 0 and the draft of token 1.

    Token 0 has warped p = 1, q = 0."""
    p, q = [[0.6, 0.4], [0.5, 0.5]], [[0.3, 0.7]]
    (trial, _) = judge(p, q, 0.5, warping=Warping(top_k=1))
    assert (trial.p, trial.q, trial.fate) == (1, 0, Fate.ACCEPTED)
    (trial, _) = judge(p, q, 0.5, warping=Warping(top_k=1), warped=False)
    assert (trial.p, trial.q) == pytest.approx((0.6, 0.3))


def test_an_end_token_kept_at_the_end_is_the_last_token():
    trials = judge(
        two(0.9, 0.9, 0.9), [[0.9, 0.1], [0.1, 0.9]], 0.0, path=[0, 1], end=frozenset({1})
    )
    assert [t.fate for t in trials] == [Fate.ACCEPTED] * 2


def test_no_draft_is_one_plain_target_step():
    request = Watched([0], source=Source(), warping=WHOLE, budget=1)
    trials, tip = keep_longest(request, [], Readings(torch.zeros(1, 4), 4), [], 0.1, True)
    assert [t.fate for t in trials] == [Fate.SAMPLED]
    assert request.tree.parents[tip] == request.tip


@given(st.data(), st.floats(0.01, 0.99), st.integers(1, 6))
def test_theorem_3_6_bounds_the_kept_length_from_below(data, threshold, length):
    probs = st.lists(st.floats(0.05, 0.95), min_size=length, max_size=length)
    p, q = two(*data.draw(probs), 0.5), two(*data.draw(probs))
    U = max(
        abs(math.log(a / b)) for x, y in zip(p, q, strict=False) for a, b in zip(x, y, strict=True)
    )
    assume(U == 0 or abs(math.log(1 / threshold) / U % 1) > 1e-6)
    assert kept(p, q, threshold) >= mtad_kept_length(threshold, U, length)
