"""Rules whose output is not the target's: typical acceptance, BiLD, FLy, mixtures."""

import math

import pytest
import torch

from decoders.distribution import Warping, Whole
from decoders.errors import InputError
from decoders.methods.catalog import catalog
from decoders.methods.lossy import Cascade, TypicalRule
from decoders.methods.named import (
    FLy,
    PromptLookup,
    Speculative,
    SpeculativeCascade,
    SpeculativeEnsemble,
)
from decoders.methods.rules import Node
from decoders.methods.sources import Chain
from decoders.randomness import SeededSource
from decoders.testing.oracle import Branches, assert_exact, decode, distance, output_law
from decoders.testing.situations import Rows, Situation, ancestral, drawn, variation
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


def test_the_bound_itself_does_not_pass():
    assert not kept([0.5, 0.5], 0, epsilon=0.5, delta=1.0)  # delta exp(-H) = 0.5 too


def test_a_refused_token_makes_way_for_the_targets_own():
    """No residual: the refused token may come again."""
    p = torch.tensor([0.97, 0.03], dtype=torch.float64)
    pick = TypicalRule().pick(Node(small(p), small(p), [1], reading(p)), Branches())
    assert not pick.accepted
    assert pick.rest.mass == small(p).mass
    assert pick.tests == [(p[1].item(), p[1].item(), None, None)]  # nothing was tossed


@pytest.mark.parametrize("temperature", [0.0, 1e-3])
@pytest.mark.parametrize("seed", range(3))
def test_towards_temperature_0_it_is_greedy(temperature, seed):
    situation = drawn(3, seed, budget=4, warping=Warping(temperature))
    greedy = ancestral(situation, Warping(temperature=0))
    assert variation(output_law(catalog["typical"](draft_length=2), situation), greedy) < 1e-9


GREEDY = Warping(temperature=0)
bild = catalog["bild"]
ALIKE = Rows(((0.05, 0.95),))


def run(method, situation, seed=0):
    return decode(method, situation, SeededSource(seed))


@pytest.mark.parametrize("warping", [Warping(), Warping(0.7, 2, 0.9)])
@pytest.mark.parametrize("seed", range(3))
def test_a_fallback_above_1_is_the_target_alone(warping, seed):
    situation = drawn(3, seed, warping=warping, end=frozenset({2}))
    assert (
        variation(output_law(bild(fallback=1.1), situation), ancestral(situation, warping)) < 1e-12
    )
    ours, plain = (run(m, situation, seed) for m in (bild(fallback=1.1), catalog["multinomial"]()))
    assert ours.output == plain.output  # the same draws, too
    assert sum(entry.drafted for entry in ours.rounds) == 0


@pytest.mark.parametrize("fallback", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_rollback_0_at_temperature_0_is_greedy(fallback, seed):
    situation = drawn(4, seed, budget=6, warping=GREEDY, end=frozenset({3}))
    (greedy,) = ancestral(situation, GREEDY)
    assert run(bild(fallback=fallback, rollback=0.0), situation).output == greedy


def test_the_draft_writes_until_it_hesitates_and_that_token_is_not_kept():
    """Sure behind the prompt and behind one more token, unsure behind two."""
    draft = Rows(((0.05, 0.95), (0.05, 0.95), (0.4, 0.6)))
    r = run(bild(), Situation(ALIKE, draft, budget=6, warping=GREEDY))
    assert [t.fate for t in r.rounds[0].trials] == [Fate.ACCEPTED, Fate.ACCEPTED, Fate.BONUS]
    assert [t.fate for t in r.rounds[1].trials] == [Fate.SAMPLED]
    assert r.rounds[1].drafted == 0


def test_hesitation_is_measured_on_the_raw_distribution():
    """At temperature 0 the warped draft is always sure."""
    unsure = Rows(((0.5, 0.5),))
    r = run(bild(), Situation(ALIKE, unsure, warping=GREEDY))
    assert sum(entry.drafted for entry in r.rounds) == 0


@pytest.mark.parametrize(("rollback", "kept"), [(3.0, 4), (2.9, 0)])
def test_the_first_token_that_is_too_unlikely_is_replaced_and_the_rest_dropped(rollback, kept):
    draft = Rows(((0.95, 0.05),))  # writes 0, whose -log p is log 20 = 2.996
    r = run(
        bild(rollback=rollback, draft_length=4), Situation(ALIKE, draft, budget=5, warping=GREEDY)
    )
    first = r.rounds[0].trials
    assert sum(t.fate == Fate.ACCEPTED for t in first) == kept
    assert first[0].p == pytest.approx(0.05)
    if not kept:
        assert [t.fate for t in first] == [Fate.REJECTED, *[Fate.DISCARDED] * 3, Fate.CORRECTED]
        assert r.output[0] == 1


def test_a_token_the_target_rules_out_is_never_kept():
    only_1 = Rows(((0.0, 1.0),))
    draft = Rows(((0.95, 0.05),))
    assert run(bild(rollback=100.0), Situation(only_1, draft, warping=GREEDY)).output == (1, 1, 1)


def test_gamma_bounds_the_draft_and_the_tail_is_verified_too():
    r = run(bild(draft_length=3), Situation(ALIKE, ALIKE, budget=8, warping=GREEDY))
    assert [entry.drafted for entry in r.rounds] == [3, 3]
    assert [entry.accepted for entry in r.rounds] == [3, 3]


@pytest.mark.parametrize(
    "settings", [{"fallback": -0.1}, {"rollback": -1}, {"draft_length": 0}, {"fallback": "high"}]
)
def test_settings_out_of_range_are_refused(settings):
    (name,) = settings
    with pytest.raises(InputError, match=f"bild: {name} must be"):
        bild(**settings)


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


def test_it_changes_the_law_but_not_what_a_sure_target_writes():
    assert FLy.law is None
    situation = drawn(3, 1, warping=GREEDY)
    assert output_law(FLy(2, window=1), situation) == output_law(Speculative(2), situation)


SITUATIONS = [
    drawn(2, 1),
    drawn(3, 3, warping=Warping(0.7, 2), end=frozenset({2})),
    drawn(3, 4, budget=2),
    drawn(3, 5, warping=Warping(0), budget=3),
]
METHODS = [
    *(SpeculativeCascade(2, x, how) for x in (0.0, 0.3, 1.0) for how in ("token", "opt")),
    *(SpeculativeEnsemble(2, weight) for weight in (0.0, 0.3, 1.0)),
    Speculative(2, 0.6, rule="cascade(alpha=0.6)"),  # drafts that stop where they hesitate
]  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS, ids=range(len(SITUATIONS)))
@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_each_has_the_law_of_its_mixture(method, situation):
    assert_exact(method, situation)


@pytest.mark.parametrize("method", [METHODS[2], METHODS[7]], ids=repr)
def test_that_law_is_not_the_targets(method):
    assert not method.lossless
    assert distance(method, SITUATIONS[0], law="target") > 0.01


def test_an_ensemble_of_the_target_alone_has_its_law():
    assert_exact(SpeculativeEnsemble(2, 1.0), SITUATIONS[0], law="target")


def test_a_token_that_the_target_finds_likely_enough_stays():
    """p = .5 .4 .1, q = 0 .6 .4, alpha .3: 1 is within .7 of the best, 2 is not."""
    situation = Situation(Rows(((0.5, 0.4, 0.1),)), Rows(((1e-9, 0.6, 0.4),)), budget=1)
    law = output_law(SpeculativeCascade(alpha=0.3), situation)
    assert [law[(x,)] for x in range(3)] == pytest.approx([0.2, 0.6 + 0.16, 0.04], abs=1e-6)


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
    assert_exact(Made(Chain(2), Cascade()), SITUATIONS[0], law="cascade")


def test_a_source_without_q_is_refused():
    with pytest.raises(InputError, match="the rule cascade cannot judge the draft lookup, a chain"):
        PromptLookup(rule="cascade")


def test_a_mixture_with_counts_is_refused():
    """It claimed the law of a mixture with the draft model, and mixed with the counts."""
    with pytest.raises(InputError, match="cannot judge the draft ngram, a chain drawn from counts"):
        Speculative(rule="ensemble", draft="ngram")
