"""Advice: rounds against enumeration and decoding, its card and its command."""

import itertools
import math
import re
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import decoders
from decoders import ModelPair, catalog
from tests.layouts import pair_of
from tests.workbench.page.visitor import Visitor
from workbench.kinds import advice as advisor
from workbench.kinds import registry
from workbench.kinds.advice import Advice, Findings, findings, tokens_per_round, verdict
from workbench.kinds.registry import from_query
from workbench.measuring import session
from workbench.measuring.transcript import acceptances
from workbench.runs.events import Ended, Progress
from workbench.runs.record import Energy, Lap, Result, Run, Sample
from workbench.studies.settings import Settings
from workbench.studies.study import GONE
from workbench.terminal import show

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
    """For such a draft the advisor predicted almost no acceptance, or failed. It fed the target's
    ids to the draft."""
    return request.getfixturevalue(request.param)


def settings(temperature: float) -> Settings:
    return Settings.from_json({"decoders": ["greedy"], "temperature": temperature, "timings": 1})


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


@pytest.mark.parametrize("length", [1, 8])
def test_at_temperature_0_the_rounds_are_exactly_those_of_decoding(each_pair, length):
    method = catalog["speculative"](draft_length=length)
    plain = decoders.generate(each_pair, PROMPTS, "greedy", max_new_tokens=40, temperature=0)
    drafted = decoders.generate(each_pair, PROMPTS, method, max_new_tokens=40, temperature=0)
    for greedy, speculative in zip(plain, drafted, strict=True):
        found = acceptances(each_pair, greedy.prompt_tokens, greedy.tokens, settings(0.0))
        assert set(found) <= {0.0, 1.0}
        assert len(speculative.rounds) == pytest.approx(40 / tokens_per_round(found, length))


def test_above_it_the_mean_rounds_are_those_of_decoding(each_pair):
    pair = each_pair
    texts, method = ["abc"] * 60, catalog["speculative"](draft_length=3)
    plain = decoders.generate(pair, texts, "multinomial", max_new_tokens=20, seed=0)
    drafted = decoders.generate(pair, texts, method, max_new_tokens=20, seed=1)
    found = [
        20 / tokens_per_round(acceptances(pair, p.prompt_tokens, p.tokens, settings(1.0)), 3)
        for p in plain
    ]
    assert sum(found) == pytest.approx(sum(len(d.rounds) for d in drafted), rel=0.08)


def advice(temperature: float = 1.0, tokens: int = 24, others: str = "mtad") -> Advice:
    """Advice on PROMPTS."""
    asked = {"decoders": others.split(), "temperature": temperature, "max_new_tokens": tokens}
    texts = {"name": "mine", "count": 3, "texts": PROMPTS}
    return Advice.from_json({"prompts": texts, "settings": {**Advice.usual, **asked}})


def ended(events) -> Run:
    *_, last = events
    assert isinstance(last, Ended)
    assert Run.from_json(last.run.dumps()) == last.run
    return last.run


@pytest.mark.parametrize(("which", "temperature"), [("pair", 0.0), ("two_tokenizers", 1.0)])
def test_every_draft_length_is_predicted_and_every_other_decoder_measured(
    request, which, temperature
):
    study = advice(temperature, tokens=12, others="lookup mtad")
    assert len(study.jobs()) == 3 * (1 + 6)
    run = ended(session.run(request.getfixturevalue(which), study))
    found = findings(run)
    predicted = [line for line in found.lines if line.predicted is not None]
    assert sorted(line.method.draft_length for line in predicted) == list(range(1, 9))
    assert {line.method.draft_length for line in predicted if line.measured} == {1, 4, 8}
    others = {line.method.name for line in found.lines if line.predicted is None}
    assert others == {"lookup", "mtad"}
    best = [line.best for line in found.lines]
    assert [each.value for each in best] == sorted((each.value for each in best), reverse=True)
    assert all(each.low <= each.value <= each.high for each in best)
    assert 0 <= found.alpha <= 1
    assert len(advisor.table(found).rows) == 10
    assert f"at temperature {temperature:g}" in verdict(found)
    if temperature == 0:  # whatever follows greedy decoding wrote its tokens
        compared = [r.agreement for r in run.results if r.agreement]
        assert compared
        assert all((each.compared, each.differing) == (1, 0) for each in compared)


@pytest.fixture(scope="module")
def short_run(pair) -> Run:
    return ended(session.run(pair, advice(tokens=8)))


def timed(speeds: dict[str, list[float]]) -> dict:
    """Timings on prompts of 20 tokens, at these tokens/s on each of them. Speculative decoding is
    as fast as "speculative"."""

    def runs(name: str) -> list[Result]:
        none, own = Energy(None, ""), [Sample(0, 1, gained=[1] * 20)]
        return [
            Result(name, 0, 0, {"new_tokens": 20, "seconds": 20 / v}, none, own,
                   [Lap(20 / v, [1 / v] * 22, none, drafting=[0.1 / v] * 22)])
            for v in speeds[name]
        ]  # fmt: skip

    lengths = {catalog["speculative"](draft_length=n): runs("speculative") for n in (1, 4, 8)}
    others = {catalog[name](): runs(name) for name in speeds if name != "speculative"}
    return {**others, **lengths}


def found(speeds: dict[str, list[float]]) -> Findings:
    return advisor.ranked([[0.0] * 20] * len(speeds["greedy"]), timed(speeds), 1.0)


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
    count = len(speeds)
    known = found({"greedy": [10.0] * count, "speculative": [1.0] * count, "mtad": speeds})
    best, says = known.lines[0].best, verdict(known)
    assert best.low <= best.value * (1 + 1e-9)
    assert best.value <= best.high * (1 + 1e-9)
    assert says.endswith("It pays.") == (best.low > 1)
    assert says.endswith("It does not pay.") == (best.high < 1)
    assert (len(speeds) < 3) == says.endswith("an interval needs at least 3 prompts.")


def test_it_stops_within_a_second_and_says_what_is_known(pair):
    """There was no way to stop it: with twenty prompts it ran for more than a minute."""
    stopped: list[float] = []
    events = session.run(pair, advice(tokens=120), cancel=lambda: bool(stopped))
    for event in events:
        if isinstance(event, Progress) and event.at.repeat == 1:
            stopped.append(time.monotonic())
            break
    run = ended(events)
    assert time.monotonic() - stopped[0] < 1
    assert run.cancelled
    assert {result.repeat for result in run.results} >= {0}
    assert "The best exact decoder" in advisor.sentences(run)[1]  # from the first prompt
    begun = replace(run, results=run.results[:2])
    assert "Nothing is known until" in advisor.sentences(begun)[1]


def test_a_run_and_a_link_that_asked_about_load_open_with_a_sentence(short_run):
    """Earlier versions also timed batches, and asked about a GPU."""
    run = short_run
    batch = replace(run.results[1], batch_size=2)
    own = {"loads": [1, 2], "gpu_bandwidth": None, "gpu_tflops": None}
    study = {**run.study, "settings": {**run.study["settings"], **own}}
    old = registry.read(replace(run, results=[*run.results, batch], study=study).dumps())
    assert advisor.sentences(old) == advisor.sentences(run)
    assert advisor.answer(old) == f"{advisor.answer(run)}<p>{GONE['loads']}</p>"
    link = from_query({"kind": "advice", "count": "2", "loads": "1,4", "gpu_tflops": "989"})
    assert link.data["prompts"]["count"] == 2
    says = f"was left out: {GONE['loads']}"
    assert link.faults == [f"The link's {name} {says}" for name in ("loads", "gpu_tflops")]


def test_advice_is_given_kept_and_opened_again(house):
    """It was kept nowhere."""
    host, page = house
    visitor = Visitor(page, "kind=advice&count=2&temperature=0&max_new_tokens=8&decoders=lookup")
    assert visitor.value("advice-count") == 2
    visitor.press("advice-run")
    assert visitor.breakdowns == []
    said = visitor.value("advice-figures")
    assert "predicted x greedy" in said
    assert "at temperature 0" in said
    assert "Done" in visitor.value("advice-progress")
    (listed,) = host.store.list(kind="advice")
    again = Visitor(page, f"run={listed.id}")
    assert again.value("advice-figures") == said
    assert again.value("advice-count") == 2
    assert again.value("advice-temperature") == 0


def test_it_ranks_the_decoders_and_says_whether_it_pays(call, monkeypatch):
    """It ran for more than a minute without a word, and then gave speeds without intervals."""
    monkeypatch.setattr(show, "LINE_SECONDS", 0)
    asked = "advise --count 3 --max-new-tokens 8 --decoders greedy --no-save"
    status, out, err = call(*asked.split())
    assert status == 0, err
    assert "predicted x greedy" in out
    says = r"The best exact decoder is .* at \d\.\d\d \(\d\.\d\d to \d\.\d\d\) times greedy"
    assert re.search(says, " ".join(out.split()))
    assert re.search(r"^1/\d+ multinomial on prompt 1$", err, re.M)
    assert re.search(r"^\d+/\d+ \S+ on prompt 3$", err, re.M)
