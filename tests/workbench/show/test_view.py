"""Runs as files, and two runs compared."""

import csv
import html
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from workbench.runs.record import Run
from workbench.show import view
from workbench.show.view import to_csv, to_html

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
        places = ("src", "href", "action", "srcset", "data")
        self.addresses += [value for name, value in attributes if name in places]
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


def test_the_csv_of_a_comparison_has_a_line_for_each_decoder_and_repeat_and_loses_nothing(run):
    found = lines(run)
    for line, result in zip(found, run.results, strict=True):
        assert (line["decoder"], int(line["seed"])) == (result.decoder, result.seed)
        assert float(line["perplexity"]) == result.metrics["perplexity"]
        assert int(line["target_calls"]) == result.metrics["target_calls"]
        rate = result.metrics["acceptance_rate"]
        assert line["acceptance_rate"] == ("" if rate is None else str(rate))
        assert line["finished"] == "budget"
    by_seed = {(r.decoder, r.seed): r.metrics["tokens_per_second"] for r in run.results}
    for line in found:
        own, greedy = (by_seed[d, int(line["seed"])] for d in (line["decoder"], "greedy"))
        assert float(line["x_greedy"]) == pytest.approx(own / greedy)


def test_a_prompt_that_looks_like_a_formula_is_text_in_a_spreadsheet(run):
    for title in ("=1+1", "+1", "-1", "@SUM(A1)"):
        assert lines(replace(run, title=title))[0]["title"] == f"'{title}"


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
    (shown,) = re.findall(r"data-shown='([^']*)'", page)
    panels = json.loads(html.unescape(shown))["panels"]
    assert [p["decoder"] for p in panels] == run.decoders
    assert panels[0]["tokens"][0]["text"] == run.results[0].alone.tokens[0].text


def test_the_report_is_named_after_its_prompt_and_its_date(run, batch_run, draw_run):
    """Every report of a comparison was "Decoders side by side" and "Decoding run 2ac9f035727d". No
    prompt, no date."""
    long = replace(run, title="A long\nprompt " * 100)
    heads = ("Decoders side by side", "Batches", "Many draws")
    for each, head in zip((long, batch_run, draw_run), heads, strict=True):
        report, prompt = html.unescape(to_html(each)), " ".join(each.title.split())[:60]
        title = report.partition("<title>")[2].partition("</title>")[0]
        assert title.startswith(prompt)
        assert each.created[:10] in title
        assert len(title) < 160
        heading = report.partition("<h1>")[2].partition("</h1>")[0]
        assert heading.startswith(f"{head}: {prompt}")
        assert f"<p>{each.created[:10]} " in report


def test_what_the_other_lacks_is_marked_and_stays_text():
    assert view.marked(["She", " saw", " a"], 1) == "She<mark> saw a</mark>"
    assert view.marked(["She"], 1) == "She"
    assert view.marked(["<script>"], 0) == "<mark>&lt;script&gt;</mark>"


def other(run: Run, **settings) -> Run:
    return replace(run, id="0e", study={**run.study, "settings": {**run.settings, **settings}})


def test_only_settings_that_differ_are_listed_those_of_a_decoder_by_its_name(run):
    changed = other(run, seed=7, mtad={**run.settings["mtad"], "beams": 2})
    assert view.differing(run, changed).rows == [["seed", "0", "7"], ["mtad.beams", "8", "2"]]
    assert view.differing(run, run).rows == []
    assert view.ALIKE in view.settings(run, run)


def test_a_decoder_of_one_run_is_named_and_not_compared(run):
    fewer = replace(run, results=[r for r in run.results if r.decoder != "mtad"])
    text = view.comparisons(fewer, run)
    assert "only in B" in text
    assert text.count('<div class="sides">') == 4
    assert "the same text" in text


def test_a_text_that_both_wrote_stands_there_once(run):
    text = view.comparisons(run, other(run, seed=7))
    assert text.count(f"<h4>{view.BOTH}</h4>") == text.count('<div class="side">') == 5
    tokens = run.results[0].alone.tokens
    shorter = replace(run.results[0].alone, tokens=tokens[:-1])
    changed = replace(run, results=[replace(run.results[0], samples=[shorter]), *run.results[1:]])
    assert view.comparisons(run, changed).count('<div class="side">') == 6


def test_what_was_written_stays_text(run):
    text = view.comparisons(run, other(run, seed=1))
    assert "<script" not in text
    assert "\x1b" in text or "&lt;/script&gt;" in text
