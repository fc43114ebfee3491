"""Rules whose output is not the target's: typical acceptance, BiLD, FLy, mixtures."""

import math

import pytest
import torch

from decoders.distribution import Warping, Whole
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.methods.lossy import Cascade, TypicalRule
from decoders.methods.named import FLy, PromptLookup, Speculative
from decoders.methods.rules import Node
from decoders.methods.sources import Chain
from decoders.request import SeededSource
from decoders.testing.oracle import Branches, assert_exact, decode
from decoders.testing.situations import Rows, Situation, drawn
from decoders.trace import Fate
from tests.pieces import FORMS, Made, distributions, reading, small


def kept(p: list[float], token: int, **settings: float) -> bool:
    p = torch.tensor(p, dtype=torch.float64)
    (kept,) = {
        TypicalRule(**settings).pick(Node(P(p), None, [token], reading(p)), Branches()).accepted
        for P in FORMS.values()
    }
    return kept


def test_a_token_stays_above_epsilon_or_above_delta_exp_minus_entropy():
    sure = [0.85, 0.1, 0.05]  # exp(-H) = 0.596, so delta's part is 0.179 and epsilon is the smaller
    assert [kept(sure, t) for t in range(3)] == [True, True, False]
    unsure = [0.05, 0.04, *[0.01] * 91]  # delta exp(-H) = 0.0038: there nearly everything passes
    assert kept(unsure, 2)
    entropy = -sum(x * math.log(x) for x in unsure)
    assert not kept(unsure, 2, delta=0.0101 * math.exp(entropy))
    assert kept(unsure, 2, delta=0.0099 * math.exp(entropy))


GREEDY = Warping(temperature=0)
bild = catalog["bild"]
ALIKE = Rows(((0.05, 0.95),))


def run(method, situation, seed=0):
    return decode(method, situation, SeededSource(seed))


@pytest.mark.parametrize(("rollback", "kept"), [(3.0, 4), (2.9, 0)])
def test_the_first_token_that_is_too_unlikely_is_replaced_and_the_rest_dropped(rollback, kept):
    draft = Rows(((0.95, 0.05),))  # writes 0, whose -log p is log 20 = 2.996
    situation = Situation(ALIKE, draft, budget=5, warping=GREEDY)
    r = run(bild(rollback=rollback, draft_length=4), situation)
    first = r.rounds[0].trials
    assert sum(t.fate == Fate.ACCEPTED for t in first) == kept
    assert first[0].p == pytest.approx(0.05)
    if not kept:
        assert [t.fate for t in first] == [Fate.REJECTED, *[Fate.DISCARDED] * 3, Fate.CORRECTED]
        assert r.output[0] == 1


# The target wants 0 and the draft 1 at the first place only; after it both want 2.
FIRST = ((0.02, 0.96, 0.02), (0.01, 0.01, 0.98))


def first_round(p: float, window: int, threshold: float, length: int = 4):
    rest = (1 - p) / 2
    target = Rows(((p, rest, rest), FIRST[1]))
    situation = Situation(target, Rows(FIRST), budget=9, warping=Warping(top_k=3))
    for seed in range(300):
        r = decode(FLy(length, threshold, window), situation, SeededSource(seed)).rounds[0]
        first = r.trials[0]
        if first.u is not None and first.u >= first.accept_probability:
            yield r


def test_a_refusal_of_an_unsure_target_that_agrees_later_stays():
    kept = [r for r in first_round(0.4, 2, 0.3) if r.trials[0].fate == Fate.ACCEPTED]
    assert kept
    assert all(r.accepted >= 3 for r in kept)  # it and the window


def test_a_refusal_of_a_sure_target_is_corrected():
    entropy = -0.9 * math.log(0.9) - 0.1 * math.log(0.05)
    assert any(r.accepted for r in first_round(0.9, 2, entropy - 0.01))
    corrected = list(first_round(0.9, 2, entropy + 0.01))
    assert corrected
    assert all((r.accepted, r.tested) == (0, 1) for r in corrected)


def test_without_room_for_the_window_it_is_speculative_decoding():
    with pytest.raises(InputError, match="the rule fly needs drafts longer than its window of 6"):
        FLy(6)
    with pytest.raises(InputError, match="lengthen the draft or shorten the window"):
        Speculative(rule="fly")
    strict = FLy(3, threshold=2.0, window=1)  # no three tokens have so much entropy
    for seed in range(5):
        situation = drawn(3, seed, budget=9)
        one, other = (decode(m, situation, SeededSource(seed)) for m in (strict, Speculative(3)))
        assert [r.trials for r in one.rounds] == [r.trials for r in other.rounds]


@pytest.mark.parametrize(
    ("form", "dtype"), [(small, torch.float64), (Whole, torch.float64), (Whole, torch.float32)]
)
def test_with_alpha_1_the_draft_model_is_always_sure_enough(form, dtype):
    """max p - max q is at most TV(p, q), but where they are equal, rounding made OPT take p."""
    rule = Cascade(alpha=1, defer="opt")
    for seed in range(0, 180, 3):  # of two tokens, where they often are
        p, q = (row.to(dtype) for row in distributions(seed, V=2))
        p, q = form(p / p.sum()), form(q / q.sum())
        assert rule.mixed(p, q) is q


def test_the_bonus_token_comes_from_the_mixture_too():
    assert_exact(Made(Chain(2), Cascade()), drawn(2, 1), law="cascade")


def test_a_source_without_q_is_refused():
    with pytest.raises(InputError, match="the rule cascade cannot judge the draft lookup, a chain"):
        PromptLookup(rule="cascade")


def test_a_mixture_with_counts_is_refused():
    """It claimed the law of a mixture with the draft model, and mixed with the counts."""
    with pytest.raises(InputError, match="cannot judge the draft ngram, a chain drawn from counts"):
        Speculative(rule="ensemble", draft="ngram")
