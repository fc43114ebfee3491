"""At which load speculation stops paying: what is timed, found and said, and bad input."""

import json
import math
import time
from dataclasses import replace

import pytest

from decoders import InputError, catalog
from workbench.kinds.advice import loads as under
from workbench.kinds.advice.command import under_load as printed
from workbench.kinds.advice.findings import findings
from workbench.kinds.advice.load_report import loads_of, sentences, table
from workbench.kinds.advice.study import Advice
from workbench.kinds.advice.view import answer
from workbench.kinds.links import from_query, to_query
from workbench.measuring import session
from workbench.runs.events import Started
from workbench.runs.record import Run

PROMPTS = ["abc abc", "one two one", "xyz"]


def advice(**own) -> Advice:
    asked = {"decoders": ["greedy"], "max_new_tokens": 16, "loads": [1, 2, 4], **own}
    texts = {"name": "mine", "count": 3, "texts": PROMPTS}
    return Advice.from_json({"prompts": texts, "settings": {**Advice.usual, **asked}})


@pytest.fixture(scope="module")
def run(pair) -> Run:
    """A run whose rounds under load take what `costed` says."""
    *_, ended = session.run(pair, advice(gpu_bandwidth=1000.0, gpu_tflops=100.0))
    return ended.run


def costed(run: Run, costs: dict[int, float]) -> Run:
    """The same run, in which a round of k drafts takes `costs[load] * (k + 1)` steps."""

    def at(result):
        if result.batch_size == 1:
            return result
        drafted = getattr(catalog[result.decoder](**result.settings), "draft_length", 0)
        times = costs[result.batch_size] * (drafted + 1) if drafted else 1.0
        timed = {"decode_seconds": 0.25 * times * 10, "passes": 10}
        return replace(result, metrics={**result.metrics, **timed})

    return replace(run, results=[at(result) for result in run.results])


def test_a_batch_of_copies_is_full_from_its_first_round_to_its_last(run):
    batches = [r for r in run.results if r.batch_size > 1]
    assert [r.batch_size for r in batches] == [2, 2, 2, 4, 4, 4] * 2
    for result in batches:
        assert not result.errors
        alone = next(
            r
            for r in run.results
            if r.batch_size == 1
            and (r.decoder, r.settings, r.repeat)
            == (result.decoder, result.settings, result.repeat)
        )
        assert result.metrics["passes"] == len(alone.alone.gained) - 1
        assert result.metrics["new_tokens"] == result.batch_size * alone.metrics["new_tokens"]


def test_large_loads_are_timed_on_one_prompt_so_that_load_takes_seconds():
    batches = [(j.batch_size, j.prompt) for j in advice(loads=[1, 8, 9, 16]).jobs()]
    assert [b for b in batches if b[0] > 1] == [
        *[(8, 0)] * 3, *[(9, 0)] * 3, *[(16, 0)] * 3, *[(8, 1)] * 3,
    ]  # fmt: skip


def test_gains_are_the_tokens_of_a_round_over_its_measured_cost(run):
    cheap = costed(run, {2: 0.5, 4: 2.0})
    found = findings(cheap)
    tokens = {line.method.draft_length: line.tokens for line in found.lines}
    loads = under.under_load(cheap, found)
    assert under.timings(cheap)[4] == [{1: 4.0, 4: 10.0}] * 2
    for load, cost in ((2, 0.5), (4, 2.0)):
        gain = loads.measured[load]
        wanted = max(tokens[n] / (cost * (n + 1)) for n in tokens)
        assert gain.times.value == pytest.approx(wanted)
        assert gain.times.low == pytest.approx(gain.times.high)
    assert loads.measured[1].times == found.lines[0].best
    assert loads.measured[4].times.value < 1 <= loads.measured[2].times.value


def test_the_error_of_the_model_is_that_of_its_costs(run):
    costs = costed(run, {2: 1.0, 4: 1.0})
    loads = under.under_load(costs, findings(costs))
    sizes = under.sizes_of(costs)
    assert set(loads.errors) == {(1, 1), (1, 4), (1, 8), (2, 1), (2, 4), (4, 1), (4, 4)}
    assert loads.errors[2, 4] == pytest.approx(sizes.ratio(loads.roof, 2, 4) / 5 - 1)
    assert loads.worst_error >= loads.mean_error > 0
    says = " ".join(sentences(loads))
    assert f"off by {loads.mean_error:.0%} on average and by {loads.worst_error:.0%}" in says
    assert "over 7 measured costs" in says


def test_a_gpu_reads_the_pair_in_16_bits_and_is_asked_beyond_the_loads_of_this_machine(run):
    sizes = under.sizes_of(run)
    half = under.halved(sizes, "float32")
    assert half.target.bytes == 2 * sizes.target.weights
    assert half.target.cache == sizes.target.cache / 2
    assert under.halved(sizes, "bfloat16").target.cache == sizes.target.cache
    loads = loads_of(run)
    assert list(loads.gpu) == [2**n for n in range(11)]
    shown = table(loads)
    assert shown.heads[-1] == "GPU: x greedy, by the model"
    assert [row[0] for row in shown.rows][-1] == "1,024"
    assert shown.rows[-1][1:4] == ["–"] * 3
    assert any("GPU of 1,000 GB/s and 100 TFLOP/s" in words for words in sentences(loads))


def test_page_terminal_and_a_file_show_the_same(run):
    loads = loads_of(run)
    html = answer(Run.from_json(run.dumps()))
    assert "<h4>Under load</h4>" in html
    assert "Load against gain" in html
    words = " ".join(str(each) for each in printed(run))
    assert all(each in words for each in sentences(loads))
    assert "Under load" not in answer(replace(run, study=advice(loads=[]).to_json()))
    old = {k: v for k, v in run.environment.items() if k != "bytes_per_second"}
    assert "Under load" not in answer(replace(run, environment=old))


def test_a_load_that_failed_is_named(run):
    results = [replace(r, error="no room") if r.batch_size == 4 else r for r in run.results]
    loads = loads_of(replace(run, results=results))
    assert 4 not in loads.measured
    assert any(
        "4 requests at once could not be measured: no room" in words for words in sentences(loads)
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bytes_per_second", 0),
        ("operations_per_second", "many"),
        ("target", {}),
        ("target", {"pass_bytes": 1, "bytes": 0, "parameters": 1}),
        ("draft", None),
        ("dtype", "x"),
    ],
)
def test_a_damaged_environment_gets_a_sentence(run, field, value):
    strange = replace(run, environment={**run.environment, field: value})
    assert "damaged" in loads_of(strange)
    assert "damaged" in answer(strange)


@pytest.mark.parametrize("metrics", [{}, {"decode_seconds": None}, {"passes": 0}])
def test_a_batch_without_times_is_left_out(run, metrics):
    results = [replace(r, metrics=metrics) if r.batch_size > 1 else r for r in run.results]
    assert list(loads_of(replace(run, results=results)).measured) == [1]


def test_it_stops_within_a_second_and_keeps_the_loads_that_are_finished(pair):
    stopped: list[float] = []
    study = advice(loads=[1, 2, 32])
    for event in session.run(pair, study, cancel=lambda: bool(stopped)):
        if isinstance(event, Started) and event.at.batch_size == 32 and not stopped:
            stopped.append(time.monotonic())
    assert time.monotonic() - stopped[0] < 1
    assert event.run.cancelled
    assert set(loads_of(event.run).measured) == {1, 2}


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"loads": [0]}, "whole numbers from 1 to 64"),
        ({"loads": "1, 65"}, "whole numbers from 1 to 64"),
        ({"loads": "1, many"}, "whole numbers from 1 to 64"),
        ({"loads": [1.5]}, "whole numbers from 1 to 64"),
        ({"loads": True}, "whole numbers from 1 to 64"),
        ({"loads": list(range(1, 10))}, "at most 8 whole numbers"),
        ({"loads": "9" * 5000}, "whole numbers from 1 to 64"),
        ({"gpu_bandwidth": 0.0, "gpu_tflops": 9.0}, "gpu_bandwidth must be"),
        ({"gpu_bandwidth": math.nan, "gpu_tflops": 9.0}, "gpu_bandwidth must be"),
        ({"gpu_bandwidth": "fast", "gpu_tflops": 9.0}, "gpu_bandwidth must be"),
        ({"gpu_bandwidth": 100.0, "gpu_tflops": 1e9}, "gpu_tflops must be"),
        ({"gpu_bandwidth": 100.0}, "give both, or neither"),
        ({"gpu_tflops": 9.0}, "give both, or neither"),
        ({"gpu_bandwidth": 100.0, "gpu_tflops": 9.0, "loads": []}, "loads is empty"),
    ],
)
def test_bad_loads_and_figures_of_a_gpu_are_refused(own, says):
    with pytest.raises(InputError, match=says):
        advice(**own)


def test_loads_are_read_from_texts_and_lists_in_order():
    assert advice(loads="16, 4 1,4").loads == (1, 4, 16)
    assert advice(loads="").loads == ()
    assert advice(loads=[]).to_json()["settings"]["loads"] == []
    assert advice(loads=[2]) == Advice.from_json(
        json.loads(json.dumps(advice(loads=[2]).to_json()))
    )


def test_a_link_has_loads_and_the_gpu():
    data = advice(loads=[1, 8], gpu_bandwidth=3350.0, gpu_tflops=989.0).to_json()
    start = {"settings": {**Advice.usual, "decoders": ["greedy"], "max_new_tokens": 16}}
    query = dict(pair.split("=") for pair in to_query("advice", data, start).split("&"))
    assert query["gpu_bandwidth"] == "3350.0"
    link = from_query({"kind": "advice", "loads": "1,8", "gpu_tflops": "989"})
    assert link.faults == []
    assert link.data["settings"] == {"loads": "1,8", "gpu_tflops": 989.0}
    (fault,) = from_query({"kind": "advice", "loads": "0"}).faults
    assert "whole numbers from 1 to 64" in fault
