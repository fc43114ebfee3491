"""The advisor: what it predicts of rounds, against enumeration and against decoding."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders import InputError, ModelPair, catalog
from decoders.theory import expected_tokens
from workbench.experiments.advice import lines, verdict
from workbench.experiments.advisor import Advice, Costs, accepted, advise, tokens_per_round
from workbench.studies.settings import Settings

PROMPTS = ["abc abc", "one two one", "xyz"]


def settings(temperature: float, tokens: int = 24) -> Settings:
    return Settings.from_json(
        {"decoders": ["greedy"], "temperature": temperature, "max_new_tokens": tokens, "timings": 1}
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7), st.integers(1, 4))
def test_rounds_are_those_of_enumerating_every_acceptance(betas, length):
    """Every pattern of accepted places, with its probability, and the rounds that it takes."""
    total = 0.0
    for pattern in itertools.product((True, False), repeat=len(betas)):
        chance = math.prod(b if yes else 1 - b for b, yes in zip(betas, pattern, strict=True))
        at, rounds = 0, 0
        while at < len(betas):
            drafted = min(length, len(betas) - at - 1)
            kept = next((k for k in range(drafted) if not pattern[at + k]), drafted)
            at, rounds = at + kept + 1, rounds + 1
        total += chance * rounds
    assert tokens_per_round(betas, length) == pytest.approx(len(betas) / total)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_with_one_alpha_for_all_places_it_is_equation_1(alpha):
    assert tokens_per_round([alpha] * 4000, 4) == pytest.approx(expected_tokens(alpha, 4), rel=0.01)


@pytest.mark.parametrize("length", [1, 3, 8])
def test_at_temperature_0_the_rounds_are_exactly_those_of_decoding(pair, length):
    method = catalog["speculative"](draft_length=length)
    plain = decoders.generate(pair, PROMPTS, "greedy", max_new_tokens=40, temperature=0)
    drafted = decoders.generate(pair, PROMPTS, method, max_new_tokens=40, temperature=0)
    for greedy, speculative in zip(plain, drafted, strict=True):
        found = accepted(pair, greedy.prompt_tokens, greedy.tokens, settings(0.0))
        assert set(found) <= {0.0, 1.0}
        assert len(speculative.rounds) == pytest.approx(40 / tokens_per_round(found, length))


def test_above_it_the_mean_rounds_are_those_of_decoding(pair):
    texts, method = ["abc"] * 60, catalog["speculative"](draft_length=3)
    plain = decoders.generate(pair, texts, "multinomial", max_new_tokens=20, seed=0)
    drafted = decoders.generate(pair, texts, method, max_new_tokens=20, seed=1)
    found = [20 / tokens_per_round(accepted(pair, p.prompt_tokens, p.tokens, settings(1.0)), 3) for p in plain]
    assert sum(found) == pytest.approx(sum(len(d.rounds) for d in drafted), rel=0.08)


def test_costs_between_the_measured_lengths_are_interpolated():
    costs = Costs(1.0, {1: 1.2, 4: 1.8, 8: 3.0}, 0.2)
    assert [round(costs.round(n), 6) for n in (1, 2, 4, 6, 8)] == [1.2, 1.4, 1.8, 2.4, 3.0]
    assert costs.c == 0.2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_draft_length_is_predicted_and_every_other_decoder_measured(pair, temperature):
    *said, advice = advise(pair, PROMPTS, settings(temperature), ("lookup", "mtad"))
    assert isinstance(advice, Advice)
    assert len(said) == 5
    predicted = [line for line in advice.lines if line.predicted is not None]
    assert sorted(line.method.draft_length for line in predicted) == list(range(1, 9))
    assert {line.method.name for line in advice.lines if line.predicted is None} == {"lookup", "mtad"}
    assert [line.best for line in advice.lines] == sorted((line.best for line in advice.lines), reverse=True)
    assert 0 <= advice.alpha <= 1
    assert len(lines(advice).rows) == 10
    assert f"at temperature {temperature:g}" in verdict(advice)


def test_a_pair_without_a_draft_cannot_be_advised_on(pair):
    with pytest.raises(InputError, match="without a draft model"):
        list(advise(ModelPair(pair.target, None, pair.tokenizer), PROMPTS, settings(1.0)))
