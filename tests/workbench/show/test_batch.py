"""The figures and tables of a batch experiment say what its cells say."""

import csv
import dataclasses
import io
import json

import pytest
from workbench.studies.batch_records import WAYS, BatchRun, Cell

from workbench.show import batch as batch_charts
from workbench.show import tables as batch_table

SPEEDS = {"vanilla": 100.0, "unpadded_kv": 120.0, "unpadded_inputs": 150.0, "unpadded": 200.0, "dynamic": 240.0}


def cell(decoder: str, size: int, way: str, speed: float, repeat: int = 0, **changes) -> Cell:
    """100 tokens at `speed`, 80 of them in the half of the time that is not spent on prompts."""
    static = WAYS[way].static
    found = Cell(
        decoder, size, way, repeat, 100 / speed, 100, 50 / speed if static else None, 80 if static else None,
        20 if static else None, 60, 20 if way == "vanilla" else 0, 7 if way == "vanilla" else 0,
        0.25 if way == "vanilla" else None, size, 3_000_000, 0, "greedy", [],
    )  # fmt: skip
    return dataclasses.replace(found, **changes)


@pytest.fixture
def run() -> BatchRun:
    cells = [cell("greedy", 1, "unpadded", 50.0), cell("lookup", 1, "unpadded", 90.0)]
    cells += [cell("greedy", 4, "unpadded", 80.0), cell("greedy", 4, "dynamic", 120.0)]
    cells += [cell("lookup", 4, way, speed) for way, speed in SPEEDS.items()]
    acceptances = {"greedy": [[1, 1, 1]] * 4, "lookup": [[1, 1], [4, 2], [2, 2], [3, 5]]}
    return BatchRun("2026-11-20T00:00:00+00:00", {}, {}, "few", [3, 3, 3, 3], cells, acceptances)


def lines(figure) -> dict[str, dict]:
    return {t.name: dict(zip(t.x, t.y, strict=True)) for t in figure.data}


def test_speed_up_is_over_greedy_of_the_same_size_and_scheduling(run):
    found = lines(batch_charts.speed_up(run, "lookup"))
    assert found["vanilla"] == {1: 1.8, 4: 1.25}
    assert found["both unpadded"] == {1: 1.8, 4: 2.5}
    assert found["both, dynamic"] == {1: 1.8, 4: 2.0}


def test_leaving_prompts_out_drops_dynamic_batches(run):
    no_figure = [dataclasses.replace(c, decode_seconds=None) if c.way == "vanilla" else c for c in run.cells]
    assert "vanilla" not in lines(
        batch_charts.speed(dataclasses.replace(run, cells=no_figure), "lookup", decoding=True)
    )
    assert list(lines(batch_charts.speed(run, "lookup", decoding=True))) == [
        "vanilla", "unpadded cache", "unpadded inputs", "both unpadded", "greedy",
    ]  # fmt: skip
    assert lines(batch_charts.speed(run, "lookup", decoding=True))["both unpadded"][4] == pytest.approx(320)
    assert lines(batch_charts.speed(run, "lookup"))["both, dynamic"][4] == pytest.approx(240)


def test_padding_and_acceptance(run):
    assert lines(batch_charts.padding(run)) == {"lookup": {1: None, 4: 0.25}}
    assert list(batch_charts.acceptance(run).data[0].y) == [1, 3, 2, 4]
    assert lines(batch_charts.least_acceptance(run)) == {"lookup": {1: 2.5, 4: 1}}


def test_a_figure_without_points_says_so(run):
    assert not batch_charts.or_told(batch_charts.padding(run)).layout.annotations
    bare = dataclasses.replace(run, cells=[c for c in run.cells if c.way != "vanilla"])
    (told,) = batch_charts.or_told(batch_charts.padding(bare)).layout.annotations
    assert "nothing measured" in told.text


def test_a_round_holds_its_pads(run):
    vanilla = next(t for t in batch_charts.round_time(run, "lookup").data if t.name == "vanilla")
    assert (list(vanilla.x), list(vanilla.y)) == ([4], [25])  # (60 + 20) / 20 tokens, 0.5 s / 20


def test_the_table_has_a_row_a_measurement_and_repeats_as_a_spread(run):
    more = dataclasses.replace(run, cells=[*run.cells, cell("lookup", 4, "vanilla", 140.0, repeat=1)])
    heads, rows = batch_table.table(more)
    vanilla = dict(zip(heads, next(r for r in rows if r[2] == "vanilla"), strict=True))
    assert len(rows) == 9
    assert vanilla["tokens/s"] == "120 ± 28.3"
    assert (vanilla["x greedy"], vanilla["padding"], vanilla["same"]) == ("1.50×", "25% ± 0%", "yes")
    assert (vanilla["at once"], vanilla["cache"]) == ("4", "3 MB")
    assert [r[2] for r in rows[:4]] == ["alone", "alone", "static", "dynamic"]


def test_the_papers_table(run):
    lines = batch_table.markdown(run, "lookup", decoding=False).splitlines()
    assert lines[0] == (
        "| batch | greedy | vanilla | unpadded cache | unpadded inputs | both unpadded | both, dynamic | padding ratio | least acceptance |"
    )
    assert lines[2] == "| 1 | 50 |  |  |  | 90 (1.80×) |  | – | 2.50 |"
    assert lines[3] == ("| 4 | 80 | 100 (1.25×) | 120 (1.50×) | 150 (1.88×) | 200 (2.50×) | 240 (2.00×) | 25% | 1.00 |")
    assert "dynamic" not in batch_table.markdown(run, "lookup", decoding=True)


def test_outputs_that_differ_and_requests_that_fail_are_told(run):
    assert batch_table.findings(run)[0] == "Identical tokens in every way and at every batch size."
    bad = [dataclasses.replace(run.cells[-1], differing=2, errors=["The model gave NaN."]), *run.cells[:-1]]
    first = batch_table.findings(dataclasses.replace(run, cells=bad))[0]
    assert "2 outputs differ" in first
    assert "1 requests failed: The model gave NaN." in first


def test_exports_are_strict_and_complete(run):
    data = json.loads(json.dumps(run.to_json(), allow_nan=False))
    assert data["acceptances"]["lookup"][3] == [3, 5]
    assert len(data["cells"]) == 9
    rows = list(csv.DictReader(io.StringIO(batch_table.to_csv(run))))
    assert float(rows[-1]["x_greedy"]) == 2.0
    assert rows[-1]["decode_seconds"] == ""
    assert rows[-1]["peak_cache_bytes"] == "3000000"
    assert batch_table.to_csv(dataclasses.replace(run, cells=[])) == "\n"
