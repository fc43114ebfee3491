"""The advisor's predictions of rounds, against enumeration and against decoding."""

import itertools
import math
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders import InputError, ModelPair, catalog
from decoders.theory import expected_tokens
from tests.layouts import pair_of
from workbench.experiments.speedups import Advice, Costs, Timed, ranked, tokens_per_round
from workbench.kinds.advice.advisor import accepted, advise
from workbench.kinds.advice.words import doubts, lines, verdict
from workbench.studies.settings import Settings

PROMPTS = ["abc abc", "one two one", "xyz"]


@pytest.fixture(scope="module")
def two_tokenizers() -> ModelPair:
    """A draft that has almost all of the target's tokens, in another order."""
    pair = pair_of("llama 2", "mistral 1")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in pair.draft.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    pair.target.generation_config.eos_token_id = []  # every text goes on to its budget
    return pair


@pytest.fixture(params=["pair", "two_tokenizers"])
def each_pair(request) -> ModelPair:
    """For such a draft the advisor predicted almost no acceptance, or failed.

    It fed the target's ids to the draft."""
    return request.getfixturevalue(request.param)


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
def test_at_temperature_0_the_rounds_are_exactly_those_of_decoding(each_pair, length):
    pair = each_pair
    method = catalog["speculative"](draft_length=length)
    plain = decoders.generate(pair, PROMPTS, "greedy", max_new_tokens=40, temperature=0)
    drafted = decoders.generate(pair, PROMPTS, method, max_new_tokens=40, temperature=0)
    for greedy, speculative in zip(plain, drafted, strict=True):
        found = accepted(pair, greedy.prompt_tokens, greedy.tokens, settings(0.0))
        assert set(found) <= {0.0, 1.0}
        assert len(speculative.rounds) == pytest.approx(40 / tokens_per_round(found, length))


def test_above_it_the_mean_rounds_are_those_of_decoding(each_pair):
    pair = each_pair
    texts, method = ["abc"] * 60, catalog["speculative"](draft_length=3)
    plain = decoders.generate(pair, texts, "multinomial", max_new_tokens=20, seed=0)
    drafted = decoders.generate(pair, texts, method, max_new_tokens=20, seed=1)
    found = [
        20 / tokens_per_round(accepted(pair, p.prompt_tokens, p.tokens, settings(1.0)), 3)
        for p in plain
    ]
    assert sum(found) == pytest.approx(sum(len(d.rounds) for d in drafted), rel=0.08)


def test_costs_between_the_measured_lengths_are_interpolated():
    costs = Costs(1.0, {1: 1.2, 4: 1.8, 8: 3.0}, 0.2)
    assert [round(costs.round(n), 6) for n in (1, 2, 4, 6, 8)] == [1.2, 1.4, 1.8, 2.4, 3.0]
    assert costs.c == 0.2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_draft_length_is_predicted_and_every_other_decoder_measured(each_pair, temperature):
    *said, advice = advise(each_pair, PROMPTS, settings(temperature), ("lookup", "mtad"))
    assert isinstance(advice, Advice)
    assert [step.done for step in said] == list(range(3 + 3 * 6))
    assert {step.total for step in said} == {3 + 3 * 6}
    predicted = [line for line in advice.lines if line.predicted is not None]
    assert sorted(line.method.draft_length for line in predicted) == list(range(1, 9))
    assert {line.method.name for line in advice.lines if line.predicted is None} == {
        "lookup",
        "mtad",
    }
    found = [line.best for line in advice.lines]
    assert [each.value for each in found] == sorted((each.value for each in found), reverse=True)
    assert all(each.low <= each.value <= each.high for each in found)
    assert 0 <= advice.alpha <= 1
    assert len(lines(advice).rows) == 10
    assert f"at temperature {temperature:g}" in verdict(advice)


def test_a_pair_without_a_draft_cannot_be_advised_on(pair):
    with pytest.raises(InputError, match="without a draft model"):
        list(advise(ModelPair(pair.target, None, pair.tokenizer), PROMPTS, settings(1.0)))


def timed(speeds: dict[str, list[float]], disturbed: tuple[str, ...] = ()) -> dict:
    """Timings on prompts of 20 tokens, at these tokens/s on each of them.

    Speculative decoding is as fast as "speculative"."""

    def runs(name: str) -> list[Timed]:
        return [
            Timed(20, 20 / v, [1 / v] * 20, [0.1 / v] * 20, 20, list(disturbed))
            for v in speeds[name]
        ]

    lengths = {catalog["speculative"](draft_length=n): runs("speculative") for n in (1, 4, 8)}
    others = {catalog[name](): runs(name) for name in speeds if name != "speculative"}
    return {**others, **lengths}


def found(speeds: dict[str, list[float]], disturbed: tuple[str, ...] = ()) -> Advice:
    return ranked([[0.0] * 20] * len(speeds["greedy"]), timed(speeds, disturbed), 1.0)


def test_it_pays_only_if_the_whole_interval_is_above_1_and_the_best_exact_decoder_is_named():
    """It said "It pays: mtad runs at 1.06 times greedy", without an interval, on a busy machine.

    The decoder changes the text."""
    steady = {"greedy": [10.0] * 6, "speculative": [9.0] * 6}
    noisy = found({**steady, "mtad": [7.0, 30.0, 7.0, 30.0, 7.5, 30.0]})
    assert noisy.lines[0].method.name == "mtad"
    says = verdict(noisy)
    assert "The best exact decoder is speculative" in says
    assert "It does not pay." in says
    assert says.endswith("The interval includes 1: whether it pays is uncertain.")
    assert "It pays." not in says

    sure = verdict(found({**steady, "mtad": [12.0, 12.5, 12.0, 12.2, 12.1, 12.0]}))
    assert sure.endswith("It pays.")
    assert sure.count("It pays.") == 1
    exact = verdict(found({"greedy": [10.0] * 6, "speculative": [13.0] * 6, "mtad": [9.0] * 6}))
    assert "The fastest of all" not in exact
    assert exact.endswith("times greedy decoding's speed. It pays.")


@given(st.lists(st.floats(5, 20), min_size=1, max_size=8))
def test_every_verdict_follows_from_its_interval(speeds):
    advice = found(
        {"greedy": [10.0] * len(speeds), "speculative": [1.0] * len(speeds), "mtad": speeds}
    )
    best, says = advice.lines[0].best, verdict(advice)
    assert best.low <= best.value * (1 + 1e-9)
    assert best.value <= best.high * (1 + 1e-9)
    assert says.endswith("It pays.") == (best.low > 1)
    assert says.endswith("It does not pay.") == (best.high < 1)
    assert (len(speeds) < 3) == says.endswith("an interval needs at least 3 prompts.")


def test_a_busy_machine_is_said():
    speeds = {"greedy": [10.0] * 3, "speculative": [9.0] * 3}
    assert doubts(found(speeds)) == ""
    assert "in 12 of 12 timings another program ran" in doubts(
        found(speeds, ("another program ran",))
    )


def test_it_stops_within_a_step(pair):
    """There was no way to stop it: with twenty prompts it ran for more than a minute."""
    stop = threading.Event()
    happening = advise(pair, PROMPTS, settings(1.0), ("mtad",), cancelled=stop.is_set)
    for step in happening:
        if step.done == 5:
            break
    stop.set()
    assert list(happening) == []
