"""A run as a file: complete, unrounded, and nothing in it is markup or a formula."""

import csv
import dataclasses
import html
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.workbench.made import made_batch, with_results
from workbench.runs.figures import BatchFigures, speed
from workbench.runs.record import Run
from workbench.show.tables import verdict
from workbench.show.view import WRITERS, to_csv, to_html, to_json

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(run):
    return to_html(run)


@pytest.fixture(scope="module")
def batch_page(batch_run):
    return to_html(batch_run)


class Reader(HTMLParser):
    """Collects the elements of a page, the addresses they name, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.addresses, self.scripts, self.in_script = [], [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [
            value
            for name, value in attributes
            if name in ("src", "href", "action", "srcset", "data")
        ]
        self.in_script = tag == "script"

    def handle_endtag(self, tag):
        self.in_script = False

    def handle_data(self, data):
        if self.in_script:
            self.scripts.append(data)


def lines(run: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(to_csv(run))))


def unknown(run: Run) -> Run:
    """The same results under a kind that belongs to another room."""
    return replace(run, kind="sweep", study={"question": "which?", "settings": {}})


def test_there_is_a_writer_for_each_kind_of_file_and_of_run(run, batch_run):
    assert list(WRITERS) == ["json", "csv", "html"]
    for each in (run, batch_run, unknown(run), unknown(batch_run), replace(run, results=[])):
        assert all(isinstance(write(each), str) for write in WRITERS.values())


# ---- JSON


def test_the_json_is_strict_complete_and_loads_again(run, batch_run):
    for each in (run, batch_run, unknown(run)):
        text = to_json(each)
        json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert Run.from_json(text) == each
    assert "🦊" in to_json(run)


def test_the_json_of_a_batch_has_every_acceptance_length(batch_run):
    data = json.loads(to_json(batch_run))
    first = next(r for r in data["results"] if r["decoder"] == "speculative")
    assert [sum(s["gained"]) for s in first["samples"]] == [12, 12, 12, 12]


# ---- CSV


def test_the_csv_of_a_comparison_has_a_line_for_each_decoder_and_repeat_and_loses_nothing(run):
    found = lines(run)
    assert [(r["decoder"], int(r["seed"])) for r in found] == [
        (r.decoder, r.seed) for r in run.results
    ]
    for line, result in zip(found, run.results, strict=True):
        assert float(line["perplexity"]) == result.metrics["perplexity"]
        assert int(line["target_calls"]) == result.metrics["target_calls"]
        rate = result.metrics["acceptance_rate"]
        assert line["acceptance_rate"] == ("" if rate is None else str(rate))
        assert line["finished"] == "budget"
    by_seed = {(r.decoder, r.seed): r.metrics["tokens_per_second"] for r in run.results}
    for line in found:
        own, greedy = (
            by_seed[line["decoder"], int(line["seed"])],
            by_seed["greedy", int(line["seed"])],
        )
        assert float(line["x_greedy"]) == pytest.approx(own / greedy)


def test_the_csv_says_what_was_asked_and_where_it_ran(run, batch_run):
    """It once had figures without settings, models and device."""
    first = lines(run)[3]
    assert list(first)[:6] == ["run", "created", "kind", "title", "target", "draft"]
    assert (first["run"], first["kind"], first["title"]) == (run.id, "comparison", run.title)
    assert (first["target"], first["device"], first["dtype"]) == (
        "LlamaForCausalLM",
        "cpu",
        "float32",
    )
    assert (first["temperature"], first["max_new_tokens"]) == ("1.0", "24")
    assert json.loads(first["settings"]) == run.settings["mtad"]
    assert (lines(batch_run)[0]["ignore_eos"], lines(batch_run)[0]["cache_mb"]) == ("True", "")


def test_the_csv_of_a_batch_is_unrounded_and_has_its_figures(batch_run):
    found, figures = lines(batch_run), BatchFigures(batch_run)
    assert len(found) == len(batch_run.results)
    for line, r in zip(found, batch_run.results, strict=True):
        of = r.decoder, r.batch_size, r.scheme
        assert (line["decoder"], int(line["batch_size"]), line["scheme"]) == of
        assert float(line["seconds"]) == r.metrics["seconds"]
        assert float(line["x_greedy"]) == figures.times_greedy(*of)
        assert line["decode_tokens_per_second"] == (
            "" if (v := speed(r, decoding=True)) is None else str(v)
        )
        assert float(line["least_acceptance"]) == figures.least_acceptance(*of[:2])
        assert line["joules"] == ""
        assert line["energy_source"] == "not measured: a test"


def test_a_figure_that_there_is_none_of_is_an_empty_field():
    last = lines(made_batch())[-1]
    assert float(last["x_greedy"]) == 2.0
    assert last["decode_seconds"] == last["decode_x_greedy"] == ""
    assert last["peak_cache_bytes"] == "3000000"
    assert (last["differing"], last["reference"], last["errors"]) == ("0", "greedy", "")


def test_without_results_the_csv_still_has_its_heads():
    text = to_csv(with_results(made_batch(), []))
    assert text.startswith("run,created,kind,title,")
    assert len(text.splitlines()) == 1


def test_a_prompt_that_looks_like_a_formula_is_text_in_a_spreadsheet(run):
    for title in ("=1+1", "+1", "-1", "@SUM(A1)"):
        assert lines(replace(run, title=title))[0]["title"] == f"'{title}"


def test_a_kind_that_this_room_does_not_know_has_its_results(batch_run):
    found = lines(unknown(batch_run))
    assert [r["decoder"] for r in found] == [r.decoder for r in batch_run.results]
    assert {r["kind"] for r in found} == {"sweep"}


# ---- HTML


def test_the_report_needs_nothing_and_asks_nobody(page, batch_page):
    for each in (page, batch_page):
        assert Reader(each).addresses == []
        assert "default-src 'none'" in each
        assert "@import" not in re.sub(r"<script.*?</script>", "", each, flags=re.S)


def test_text_of_a_prompt_or_a_model_is_text_and_never_markup(page, run):
    reader = Reader(page)
    assert not {"b", "img", "iframe"} & set(reader.tags)
    assert not any(script.lstrip().startswith("alert") for script in reader.scripts)
    assert html.escape(run.title) in page
    for result in run.results[:5]:
        assert html.escape(result.alone.text) in page


def test_text_in_a_batch_is_text_and_never_markup(batch_run):
    """Names of prompt sets and models and reasons of failures come from files of other people."""
    first, *rest = batch_run.results
    broken = replace(first, error=HOSTILE)
    where = {**batch_run.environment, "device_name": HOSTILE}
    hostile = replace(batch_run, title=HOSTILE, environment=where, results=[broken, *rest])
    for each in (hostile, unknown(hostile)):
        reader = Reader(to_html(each))
        assert not {"i", "b", "img", "iframe"} & set(reader.tags)
        assert not any("alert(1)" in script for script in reader.scripts)


def test_the_report_holds_the_run_it_draws(page, run):
    """It held it twice, for the picture and for the texts: all decoders took 7 MB."""
    found = re.search(r"data-shown='([^']*)'", page)
    assert found
    panels = json.loads(html.unescape(found[1]))["panels"]
    assert [p["decoder"] for p in panels] == run.decoders
    assert panels[0]["tokens"][0]["text"] == run.results[0].alone.tokens[0].text


def test_the_report_says_what_came_out(run):
    for sentence in (verdict(run),):
        assert html.escape(sentence) in to_html(run)


def test_the_report_is_named_after_its_prompt_and_its_date(run, batch_run, draw_run):
    """Every report of a comparison was "Decoders side by side" and "Decoding run 2ac9f035727d".

    No prompt, no date."""
    long = dataclasses.replace(run, title="A long\nprompt " * 100)
    for each, head in (
        (long, "Decoders side by side"),
        (batch_run, "Batches"),
        (draw_run, "Many draws"),
    ):
        report, prompt = html.unescape(to_html(each)), " ".join(each.title.split())[:60]
        title = report.partition("<title>")[2].partition("</title>")[0]
        assert title.startswith(prompt)
        assert each.created[:10] in title
        assert len(title) < 160
        heading = report.partition("<h1>")[2].partition("</h1>")[0]
        assert heading.startswith(f"{head}: {prompt}")
        assert f"<p>{each.created[:10]} " in report


def test_the_report_of_a_batch_has_verdict_charts_and_tables(batch_page, batch_run):
    assert "Identical tokens in every scheme and at every batch size." in batch_page
    charts = [s for s in Reader(batch_page).scripts if "Plotly.newPlot(" in s and len(s) < 100_000]
    assert len(charts) == 2 * 3 + 3  # three of each decoder, three of all
    for words in (
        "lookup: 1.",
        "Speed-up over greedy",
        "The slowest of a batch",
        "no padding",
        "slowest prompt",
    ):
        assert words in batch_page


def test_the_report_says_what_it_was_measured_on(page, run, batch_page, batch_run):
    assert html.escape(run.environment["platform"]) in page
    assert html.escape(batch_run.title) in batch_page
    assert "<dt>temperature</dt><dd>0.0</dd>" in batch_page
