"""Cascade and ensemble: exact for their own mixture of both models, and not for the target."""

import pytest
import torch

from decoders.distribution import Warping, Whole
from decoders.errors import InputError
from decoders.methods.lossy import Cascade
from decoders.methods.named import (
    PromptLookup,
    Speculative,
    SpeculativeCascade,
    SpeculativeEnsemble,
)
from decoders.methods.sources import Chain
from decoders.testing import mutant
from decoders.testing.oracle import assert_exact, distance, output_law
from decoders.testing.situations import Rows, Situation, drawn
from tests.pieces import Made, distributions, small

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
    wrong = mutant(Cascade, ("beyond = True", "beyond = False"))
    assert distance(Made(Chain(2), wrong()), SITUATIONS[0], law="cascade") > 1e-3


def test_a_source_without_q_is_refused():
    with pytest.raises(InputError, match="the rule cascade cannot judge the draft lookup, a chain"):
        PromptLookup(rule="cascade")


def test_a_mixture_with_counts_is_refused():
    """It claimed the law of a mixture with the draft model, and mixed with the counts."""
    with pytest.raises(InputError, match="cannot judge the draft ngram, a chain drawn from counts"):
        Speculative(rule="ensemble", draft="ngram")
