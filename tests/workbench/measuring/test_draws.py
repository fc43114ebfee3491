"""Draws through the engine: every seed's text is that of a separate decoding. The exact law is the
model's, and Stop keeps all draws."""

import itertools

import pytest
import torch

import decoders
from decoders import InputError
from decoders.distribution import Warping, warp
from tests.models import plain_logits
from tests.workbench.measuring.conftest import results
from workbench.kinds.draw import Draw, again
from workbench.measuring import session
from workbench.measuring.work import admit
from workbench.runs.draws import KNOWN, findings, grown, seeds, texts_of
from workbench.runs.events import Ended, onto
from workbench.runs.record import Run

SHARED = {"max_new_tokens": 5, "temperature": 0.5, "top_p": 0.9, "seed": 3}


def draw(*names: str, draws: int = 12, prompt: str = "abab", **shared) -> Draw:
    settings = {**SHARED, "decoders": list(names), "draws": draws, **shared}
    return Draw.from_json({"prompt": prompt, "settings": settings})


def ended(pair, study, meter, **options) -> Run:
    *_, last = session.run(pair, study, meter=meter, **options)
    assert isinstance(last, Ended)
    return last.run


@pytest.mark.parametrize("name", ["multinomial", "speculative", "dsbd", "beam_sampling", "mtad"])
def test_each_draw_is_the_text_of_its_seed(pair, unmetered, name):
    (result,) = results(session.run(pair, draw(name), meter=unmetered))
    for sample in result.samples:
        seed = SHARED["seed"] + sample.prompt
        alone = decoders.generate(pair, "abab", name, **{**SHARED, "seed": seed})
        assert [piece.id for piece in sample.pieces] == alone.tokens
        assert alone.text.startswith("".join(piece.text for piece in sample.pieces))
    assert len(result.samples) == 12


def test_the_exact_law_is_the_models_own(pair, unmetered):
    """Each prefix by the plain forward pass, token by token; and none that begins one in 200 texts
    is missing."""
    run = ended(pair, draw("multinomial", max_new_tokens=2), unmetered)
    ids, warping = list(pair.tokenizer("abab").input_ids), Warping(0.5, 0, 0.9)
    law = {tuple(prefix.tokens): prefix.p for prefix in run.exact}
    expected = {}
    for a, p in enumerate(warp(plain_logits(pair.target, ids).double(), warping).tolist()):
        if p >= KNOWN:
            expected[a,] = p
            second = warp(plain_logits(pair.target, [*ids, a]).double(), warping).tolist()
            expected |= {(a, b): p * q for b, q in enumerate(second) if p * q >= KNOWN}
    assert law.keys() == expected.keys()
    assert len(law) > 3
    assert all(abs(law[key] - expected[key]) < 1e-4 for key in law)


def test_five_decoders_and_what_their_draws_say(pair, unmetered):
    names = ["multinomial", "speculative", "mtad", "dsbd", "greedy"]
    run = ended(pair, draw(*names, draws=100), unmetered)
    found = {each.decoder: each for each in findings(run)}
    compared = [found[name].compared for name in names]
    assert compared == ["target", "target", "own", "first step", "own"]
    assert all(found[name].p > 0.001 for name in ("multinomial", "speculative", "dsbd"))
    assert found["mtad"].p is None
    assert found["greedy"].unlike
    for result in run.results:
        root = grown(sample.pieces for sample in texts_of([result]))
        assert root.count == 100 == sum(child.count for child in root.following)


def test_memory_is_bounded_by_the_budget(pair, unmetered):
    """Draws wait for room, and are the same."""
    row = decoders.cache_need(pair, decoders.catalog["multinomial"](), 1, 1) / 2
    budget = round(3.5 * 9 * row / 1e6, 4) + 0.005
    few = ended(pair, draw("multinomial", cache_mb=budget), unmetered)
    many = ended(pair, draw("multinomial"), unmetered)
    assert few.results[0].metrics["at_once"] < many.results[0].metrics["at_once"] == 12
    assert [s.pieces for s in few.results[0].samples] == [s.pieces for s in many.results[0].samples]
    with pytest.raises(InputError, match="give at least"):
        admit(pair, draw("dsbd", cache_mb=0.01))


def test_stop_within_a_round_keeps_what_is_drawn(pair, unmetered):
    """Half a measurement of a batch is thrown away, half of the draws is worth showing."""
    count = itertools.count()
    study = draw("multinomial", "speculative", draws=40, max_new_tokens=8, cache_mb=0.014)
    run = ended(pair, study, unmetered, cancel=lambda: next(count) > 25)
    assert run.cancelled
    assert 0 < len(texts_of(run.results)) < 40
    assert len(run.results) == 1
    assert Run.from_json(run.dumps()) == run
    (found,) = findings(run)
    assert found.texts < 40


def test_draws_with_other_seeds_are_added_to_a_run(pair, unmetered):
    """Only a new run could follow 200 draws that looked odd, and it forgot them. Draws that are
    added twice are those of as many draws at once."""
    run = ended(pair, draw("multinomial", "speculative"), unmetered)
    for _ in range(2):
        *_, last = onto(run, session.run(pair, again(run), meter=unmetered))
        run, before = last.run, run
        assert run.id == before.id
        assert run.results[: len(before.results)] == before.results
    whole = ended(pair, draw("multinomial", "speculative", draws=48), unmetered)
    for name in ("multinomial", "speculative"):
        parts = [result for result in run.results if result.decoder == name]
        drawn = [(result.seed, len(result.samples)) for result in parts]
        assert drawn == [(3, 12), (15, 12), (27, 24)]
        assert seeds(parts) == [range(3, 51)]
        (once,) = [result for result in whole.results if result.decoder == name]
        assert [s.pieces for s in texts_of(parts)] == [s.pieces for s in once.samples]
    assert [each.texts for each in findings(run)] == [48, 48]
    assert findings(run) == findings(whole)
    assert Run.from_json(run.dumps()) == run


def test_a_text_that_ends_early_counts_whole(pair, unmetered, monkeypatch):
    ends = int(torch.argmax(plain_logits(pair.target, list(pair.tokenizer("abab").input_ids))))
    monkeypatch.setattr(pair.target.generation_config, "eos_token_id", ends)
    run = ended(pair, draw("multinomial", draws=60, temperature=0.7), unmetered)
    assert any(len(sample.pieces) == 1 for sample in run.results[0].samples)
    assert not any(len(prefix.tokens) > 1 and ends in prefix.tokens[:-1] for prefix in run.exact)
    (found,) = findings(run)
    assert found.texts == 60


@pytest.mark.parametrize(("changes", "says"), [
    ({"draws": 9}, "draws must be"),
    ({"draws": 1001}, "draws must be"),
    ({"draws": True}, "draws must be"),
    ({"repeats": 2}, "leave repeats at 1"),
    ({"prompt": " "}, "The prompt is empty"),
    ({"prompt": None}, "must be a text"),
    ({"cache_mb": -1}, "cache_mb must be"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_one_sentence(changes, says):
    with pytest.raises(InputError, match=says):
        draw("multinomial", **changes)
