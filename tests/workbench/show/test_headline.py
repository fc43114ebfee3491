"""The headline is true of its run, and chance is not called a victory."""

import json
from dataclasses import replace

import pytest

from decoders import catalog
from tests.workbench.made import UNMEASURED
from workbench.kinds.comparison import view as strip
from workbench.page.tabs.runs import best
from workbench.runs.estimates import rows
from workbench.runs.ranking import fastest as run_fastest
from workbench.runs.record import Result, Run, Sample
from workbench.runs.trace import Lap, Load
from workbench.show.headline import fastest, headline, likeliest, marks
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


def test_the_headline_says_what_the_best_drafts_saved_and_who_won():
    says = headline(made(GREEDY, SPECULATIVE, MTAD))
    assert says[0] == "MTAD wrote 64 tokens in 16 passes of the large model instead of 64."
    assert "Fastest here: MTAD, 128 tokens/s, 1.98 times greedy." in says
    assert any(s.startswith("Likeliest text: MTAD (perplexity 1.50") for s in says)


def test_overlapping_timings_have_no_winner():
    close = result("speculative", [0.48, 0.6, 0.52], 30, 4.0)
    assert fastest(rows(made(GREEDY, close, MTAD).results)) is None
    alike = made(*(result(name, [0.5, 0.505, 0.51], 30, 4.0) for name in ("speculative", "mtad")))
    assert (
        "No decoder is clearly the fastest here: the ranges of their timings overlap."
        in headline(alike)
    )


def test_what_beats_greedy_is_named_though_nobody_is_the_fastest():
    """A stranger read "no decoder is clearly the fastest" as "nothing is faster than greedy"."""
    close = result("speculative", [0.495, 0.51, 0.5], 30, 4.0)
    told = headline(made(GREEDY, close, MTAD))
    assert (
        "Faster than greedy: Speculative 2.00 times, MTAD 1.98 times; their ranges overlap." in told
    )
    slow = result("speculative", [0.98, 1.02, 1.0], 30, 4.0)  # perhaps slower than greedy
    slower = result("mtad", [0.99, 1.02, 1.0], 16, 1.5)
    told = headline(made(GREEDY, slow, slower))
    assert "No decoder is clearly the fastest here: the ranges of their timings overlap." in told


def test_a_disturbed_or_single_timing_has_no_winner():
    busy = replace(
        SPECULATIVE, laps=[replace(lap, load=Load(cpu_share=0.5)) for lap in SPECULATIVE.laps]
    )
    assert fastest(rows(made(GREEDY, busy, MTAD).results)) is None
    once = [result(r.decoder, [r.laps[0].seconds], 30, 2.0) for r in (GREEDY, SPECULATIVE)]
    run = made(*once)
    assert fastest(rows(run.results)) is None
    assert "No decoder is clearly the fastest here: each was timed once." in headline(run)
    told = headline(made(GREEDY, busy, MTAD))
    assert "No decoder is clearly the fastest here: timings marked ≈ cannot be trusted." in told


def place(run: Run, decoder: str) -> str:
    return _panel(run, decoder)["place"][0]


def test_the_race_is_as_sure_of_its_places_as_the_headline():
    """It named a 1st, a 2nd and a 3rd; the headline said that nobody can tell the fastest."""
    run = made(GREEDY, SPECULATIVE, MTAD)
    assert [place(run, d) for d in run.decoders] == ["3rd", "2nd", "1st"]
    close = made(GREEDY, result("speculative", [0.495, 0.51, 0.5], 30, 4.0), MTAD)
    assert [place(close, d) for d in run.decoders] == ["3rd", "shared 1st", "shared 1st"]
    busy = replace(GREEDY, laps=[replace(lap, load=Load(cpu_share=0.5)) for lap in GREEDY.laps])
    once = result("mtad", [0.5], 16, 1.5)
    for unsure, why in (
        (made(busy, SPECULATIVE, MTAD), "timings marked ≈ cannot be trusted"),
        (made(GREEDY, once), "each was timed once"),
    ):
        assert {place(unsure, d) for d in unsure.decoders} == {""}
        assert _panel(unsure, "mtad")["place"][1] == why
        assert f"No decoder is clearly the fastest here: {why}." in headline(unsure)


def test_what_failed_has_no_place():
    run = made(GREEDY, MTAD, replace(SPECULATIVE, error="broken", metrics={}))
    assert [place(run, d) for d in run.decoders] == ["2nd", "1st", ""]


def test_the_list_of_runs_is_as_sure_as_the_headline():
    """The headline said that nobody can tell which is fastest, the list named one."""
    close = result("speculative", [0.48, 0.6, 0.52], 30, 4.0)
    for run, sure in ((made(GREEDY, close, MTAD), False), (made(GREEDY, SPECULATIVE, MTAD), True)):
        assert best(run_fastest(run)).startswith("MTAD: 128" if sure else "MTAD: ≈128")


def test_a_law_that_holds_layer_by_layer_is_not_called_the_same():
    """DSBD was "same as beam sampling", and beam sampling won in perplexity.

    Among decoders of one law that is chance."""
    run = made(result("beam_sampling", [1.0], 30, 1.8), result("dsbd", [1.0], 20, 2.0))
    assert likeliest(rows(run.results), run.settings).decoder == "beam_sampling"
    assert "same as" not in _panel(run, "dsbd")["claim"]


def test_decoders_of_one_law_do_not_win_in_perplexity():
    """At temperature 1 decoders of one law got perplexities of 4.9 to 23.0.

    They stood under "lower is better", without a word."""
    spectr = result("spectr", [0.9, 0.9, 0.9], 40, 1.2)
    run = made(GREEDY, SPECULATIVE, spectr)
    assert likeliest(rows(run.results), run.settings) is None
    chance = (
        "Speculative and SpecTr draw from the same distribution: differences between their texts "
        "are due to chance."
    )
    assert chance in headline(run)
    assert marks(rows(run.results), run.settings) == {
        "greedy": [],
        "speculative": ["fastest"],
        "spectr": [],
    }
    detail = next(
        n["detail"] for n in _panel(run, "spectr")["numbers"] if n["name"] == "perplexity"
    )
    assert "differs from Speculative by chance alone" in detail


def test_at_temperature_0_nothing_is_chance():
    run = made(GREEDY, SPECULATIVE, result("spectr", [0.9] * 3, 40, 2.0), temperature=0.0)
    assert not any("chance" in sentence for sentence in headline(run))
    assert _panel(run, "spectr")["claim"] == "same as greedy"


def test_a_run_with_nothing_in_it_has_no_headline():
    assert headline(made(replace(GREEDY, error="broken", metrics={}))) == []
    empty = replace(GREEDY, metrics={})
    assert headline(made(empty, replace(MTAD, metrics={"block_efficiency": "x"}))) != [""]


def test_the_winner_is_marked_in_its_panel():
    assert _panel(made(GREEDY, SPECULATIVE, MTAD), "mtad")["marks"] == ["fastest", "likeliest text"]
    assert _panel(made(GREEDY, SPECULATIVE, MTAD), "greedy")["marks"] == []


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", catalog)
def test_every_decoder_claims_something_in_plain_words(name, temperature):
    panel = _panel(made(result(name, [1.0], 30, 2.0), temperature=temperature), name)
    assert 0 < len(panel["claim"]) < 30
    assert panel["claim_help"].endswith(".")


def test_greedy_does_not_claim_to_sample():
    """Greedy at temperature 1 wore "exactly as the target sampled alone"."""
    claim = _panel(made(GREEDY), "greedy")
    assert "sampl" not in claim["claim"] + claim["claim_help"]


def _panel(run: Run, decoder: str) -> dict:
    return next(
        p for text in strip.run_panels(run) if (p := json.loads(text))["decoder"] == decoder
    )
