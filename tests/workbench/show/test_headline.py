"""The verdict is true of its run, and chance is not called a victory."""

import json
from dataclasses import replace

import pytest

from decoders import catalog
from tests.workbench.made import UNMEASURED
from workbench.runs.record import Lap, Load, Result, Run, Sample
from workbench.show import panel as strip
from workbench.show.tables import verdict
from workbench.studies.settings import Settings


def result(
    decoder: str, seconds: list[float], passes: int, perplexity: float, load: Load | None = None
) -> Result:
    """64 tokens, timed as often as there are seconds."""
    speed = 64 / sorted(seconds)[len(seconds) // 2]
    metrics = {
        "new_tokens": 64, "target_calls": passes, "block_efficiency": 64 / passes,
        "perplexity": perplexity, "tokens_per_second": speed, "seconds": 64 / speed,
    }  # fmt: skip
    laps = [Lap(s, [s], UNMEASURED, load=load or Load()) for s in seconds]
    return Result(decoder, 0, 0, metrics, UNMEASURED, [Sample(0, 3)], laps)


def made(*results: Result, **settings) -> Run:
    asked = Settings.from_json({"decoders": [r.decoder for r in results], **settings}).to_json()
    study = {"prompt": "Once", "settings": asked}
    return Run("abc", "2026-11-20T00:00:00+00:00", "comparison", "Once", study, {}, list(results))


GREEDY = result("greedy", [1.0, 1.01, 0.99], 64, 2.0)
MTAD = result("mtad", [0.5, 0.51, 0.5], 16, 1.5)
SPECULATIVE = result("speculative", [0.8, 0.81, 0.8], 30, 4.0)
BUSY = result("speculative", [0.8, 0.81, 0.8], 30, 4.0, Load(cpu_share=0.5))


def test_the_verdict_names_the_exact_decoder_and_what_it_saved():
    """It praised MTAD, whose text is another one, beside "fastest: speculative"."""
    assert verdict(made(GREEDY, SPECULATIVE, MTAD)) == (
        "Speculative: the same kind of text, 30 passes instead of 64, 1.2 times as fast here."
    )
    cold = made(GREEDY, SPECULATIVE, MTAD, temperature=0.0)
    assert verdict(cold).startswith("Speculative: the same text, 30 passes")


def test_the_distribution_of_beams_is_not_the_same_kind_of_text():
    """DSBD was praised as "the same kind of text": it draws as beam sampling does."""
    beams = result("dsbd", [0.8, 0.81, 0.8], 20, 4.0)
    assert verdict(made(GREEDY, SPECULATIVE, beams)).startswith("Speculative: the same kind")
    assert verdict(made(GREEDY, beams)).startswith(
        "DSBD: 20 passes instead of 64, and not the large model’s own distribution"
    )


def test_without_an_exact_decoder_the_verdict_says_that_the_text_is_another():
    assert verdict(made(GREEDY, MTAD)) == (
        "MTAD: 16 passes instead of 64, and not the large model’s own distribution, "
        "2.0 times as fast here."
    )


def test_rough_speeds_are_one_sentence():
    """Twelve marks said that nothing can be trusted."""
    uneven = result("speculative", [0.5, 0.8, 1.3], 30, 4.0)
    for each in (BUSY, uneven):
        says = "Speeds are rough: this machine is busy, or its timings differ."
        assert verdict(made(GREEDY, each)).endswith(says)


def test_a_likely_text_wins_no_mark_and_chance_is_named():
    """Decoders of one distribution got perplexities of 4.9 to 23.0 under "lower is better"."""
    spectr = result("spectr", [0.9, 0.9, 0.9], 40, 1.2)
    run = made(GREEDY, SPECULATIVE, spectr)
    won = {name: _panel(run, name)["marks"] for name in run.decoders}
    assert won == {"greedy": [], "speculative": ["fastest"], "spectr": []}
    details = {n["name"]: n["detail"] for n in _panel(run, "spectr")["numbers"]}
    assert "differs from Speculative by chance alone" in details["perplexity"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", catalog)
def test_every_decoder_claims_something_in_plain_words(name, temperature):
    panel = _panel(made(result(name, [1.0], 30, 2.0), temperature=temperature), name)
    assert 0 < len(panel["claim"]) < 30
    assert panel["claim_help"].endswith(".")


def marked(run: Run) -> set[str]:
    return {name for name in run.decoders if _panel(run, name)["marks"]}


def _panel(run: Run, decoder: str) -> dict:
    panels = map(json.loads, strip.run_panels(run))
    return next(panel for panel in panels if panel["decoder"] == decoder)


def test_a_short_text_has_no_verdict():
    """It said "2 tokens in 1 pass instead of 2"."""
    short = {**SPECULATIVE.metrics, "new_tokens": 2, "target_calls": 1, "block_efficiency": 2.0}
    assert verdict(made(replace(SPECULATIVE, metrics=short))) == ""


def test_until_its_timing_is_over_the_verdict_has_no_speed():
    assert verdict(made(GREEDY, SPECULATIVE), settled=False) == (
        "Speculative: the same kind of text, 30 passes instead of 64."
    )


def test_greedy_does_not_claim_to_sample():
    """Greedy at temperature 1 wore "exactly as the target sampled alone"."""
    claim = _panel(made(GREEDY), "greedy")
    assert "sampl" not in claim["claim"] + claim["claim_help"]


def test_a_disturbed_or_single_timing_has_no_winner():
    assert marked(made(GREEDY, BUSY, MTAD)) == set()
    once = [result(r.decoder, [r.laps[0].seconds], 30, 2.0) for r in (GREEDY, SPECULATIVE)]
    assert marked(made(*once)) == set()
    close = result("speculative", [0.48, 0.6, 0.52], 30, 4.0)
    assert marked(made(GREEDY, close, MTAD)) == set()
