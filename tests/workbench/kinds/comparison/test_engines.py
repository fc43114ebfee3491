"""The panel of an engine, its columns and its place in charts: what is not told is not drawn."""

import csv
import io
import json
from dataclasses import replace

import pytest

from workbench.measuring.served import NO_ENERGY, untold
from workbench.runs.figures import rows
from workbench.runs.record import UNTOLD, Agreement, Lap, Result, Run, Sample, Server, TokenRecord
from workbench.runs.timing import round_seconds
from workbench.show import comparison, tables
from workbench.show.looks import look_of
from workbench.show.panel import run_panels
from workbench.show.tables import verdict
from workbench.show.view import WRITERS

NAME = "engine:fast"
MODEL = "<b>stories</b>"


def token(i: int) -> TokenRecord:
    return TokenRecord(i, 3 + i, f" w{i}", UNTOLD, i // 2, None, None, None, None, -1.0, [])


def asked(**changes) -> Result:
    """Four tokens that came in two pieces, timed twice."""
    known = {"new_tokens": 4, "seconds": 2.0, "tokens_per_second": 2.0, "perplexity": 2.5}
    sample = Sample(0, 3, " w0 w1 w2 w3", [token(i) for i in range(4)], arrivals=[0.5, 1.5])
    laps = [
        Lap(2.0, [], NO_ENERGY, 1.5, drawn=False),
        Lap(2.0, [], NO_ENERGY, 1.6, drawn=False),
    ]
    server = Server("vllm", "0.32.0", MODEL)
    found = Result(
        NAME, 0, 0, {**untold(), **known}, NO_ENERGY, [sample], laps, server=server,
        remarks=["It tells little."],
    )  # fmt: skip
    return replace(found, **changes)


@pytest.fixture
def beside(run) -> Run:
    """An engine beside the decoders of a run."""
    once = [result for result in run.results if result.repeat == 0]
    names = [*run.settings["decoders"], NAME]
    settings = {**run.settings, "decoders": names, "repeats": 1}
    return replace(run, results=[*once, asked()], study={**run.study, "settings": settings})


def panel(run: Run) -> dict:
    return json.loads(run_panels(run)[-1])


def test_a_panel_says_what_the_server_is_and_when_its_first_token_came(beside):
    found = panel(beside)
    assert (found["decoder"], found["title"]) == (NAME, "Engine fast")
    assert found["claim"] == "vllm 0.32.0, over HTTP"
    assert f"It serves “{MODEL}”. It is measured from outside" in found["claim_help"]
    top = {n["name"]: n["value"] for n in found["numbers"] if n["place"] == "top"}
    assert list(top) == ["x_greedy", "first_token"]
    assert top["first_token"] == "400 ms"
    assert found["notes"] == ["It tells little."]
    assert found["rounds"] == []


def test_what_is_not_told_has_no_figure(beside):
    values = {n["name"]: n["value"] for n in panel(beside)["numbers"]}
    for name in ("block_efficiency", "acceptance", "alpha", "memory_per_token", "peak_memory"):
        assert values[name] == "–", name
    assert values["joules_per_token"] == "–"
    assert values["decoding"] == "–"


@pytest.mark.parametrize(
    ("verdict", "kind", "text"),
    [
        ("same", "same", "✓ identical to Greedy"),
        ("near-tie", "tie", "≠ near-tie at token 5"),
        ("fault", "differs", "≠ fault at token 5"),
        ("cannot tell", "tie", "≠ differs, cannot tell why, at token 5"),
    ],
)
def test_the_judge_s_verdict_is_its_badge(verdict, kind, text, beside):
    differs = verdict != "same"
    given = Agreement(
        "greedy", 1, int(differs), 4 if differs else None, verdict=verdict, says="Because."
    )
    judged = replace(beside, results=[*beside.results[:-1], asked(agreement=given)])
    badge = panel(judged)["badge"]
    assert (badge["kind"], badge["text"]) == (kind, text)
    assert (badge["help"] == "Because.") == differs


def test_the_race_has_its_pieces_when_they_arrived(beside):
    assert panel(beside)["clock"] == [0.5, 1.0]
    slow = asked(laps=[Lap(4.0, [], NO_ENERGY), Lap(2.0, [], NO_ENERGY)])
    assert round_seconds(slow) == [0.25, 0.5]  # the quicker of its timings


def test_charts_tables_and_files_hold_it(beside):
    drawn = [
        figure.to_json() for figure in comparison.charts(rows(beside.results), beside.settings)
    ]
    assert any("Engine fast" in each for each in drawn)
    table = tables.figures(beside)
    assert table.rows[-1][0] == "Engine fast"
    for write in WRITERS.values():
        assert "Engine fast" in write(beside) or NAME in write(beside)
    assert MODEL not in WRITERS["html"](beside)
    assert Run.from_json(WRITERS["json"](beside)) == beside
    assert verdict(beside)


def test_a_spreadsheet_has_columns_for_engines_where_there_is_one(beside, run):
    """The engine's kind once stood in the column of the run's kind."""

    def lines(run):
        return list(csv.DictReader(io.StringIO(WRITERS["csv"](run))))

    found = lines(beside)
    last = found[-1]
    told = [last[f"engine_{name}"] for name in ("kind", "version", "model")]
    assert told == ["vllm", "0.32.0", MODEL]
    assert {line["kind"] for line in found} == {"comparison"}
    assert float(last["seconds_to_first_token"]) == pytest.approx(0.4)
    assert (last["verdict"], last["bytes_read"]) == ("", "")
    assert found[0]["engine_version"] == ""
    assert "engine_version" not in lines(run)[0]


def test_a_failed_engine_keeps_its_text_and_says_why(beside):
    died = asked(error="Engine fast broke off the answer.")
    found = panel(replace(beside, results=[*beside.results[:-1], died]))
    assert (found["status"], found["numbers"]) == ("failed", [])
    assert found["error"] == "Engine fast broke off the answer."
    assert len(found["tokens"]) == 4


def test_an_engine_has_one_look_wherever_it_is_drawn():
    assert look_of(NAME) == look_of(NAME)
    assert look_of("engine:other") != look_of(NAME)
