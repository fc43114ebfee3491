import csv
import html
import io
import json
import re
from html.parser import HTMLParser

import pytest

from workbench.runs.store import Run
from workbench.show.files import WRITERS, facts, to_csv, to_html, to_json


@pytest.fixture(scope="module")
def page(run):
    return to_html(run)


class Reader(HTMLParser):
    """Collects the elements of a page, the addresses they name, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.addresses, self.scripts, self._in_script = [], [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "action", "srcset", "data")]
        self._in_script = tag == "script"

    def handle_endtag(self, tag):
        self._in_script = False

    def handle_data(self, data):
        if self._in_script:
            self.scripts.append(data)


def test_the_json_is_strict_complete_and_loads_again(run):
    text = to_json(run)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert Run.from_json(text) == run
    assert "🦊" in text


def test_the_table_has_a_row_for_each_decoder_and_repeat_and_loses_nothing(run):
    rows = list(csv.DictReader(io.StringIO(to_csv(run))))
    assert [(r["decoder"], int(r["seed"])) for r in rows] == [(r.decoder, r.seed) for r in run.results]
    for row, result in zip(rows, run.results, strict=True):
        assert float(row["perplexity"]) == result.metrics["perplexity"]
        assert int(row["target_calls"]) == result.metrics["target_calls"]
        assert row["acceptance_rate"] == (
            "" if result.metrics["acceptance_rate"] is None else str(result.metrics["acceptance_rate"])
        )


def test_the_report_needs_nothing_and_asks_nobody(page):
    assert Reader(page).addresses == []
    assert "default-src 'none'" in page
    assert "@import" not in re.sub(r"<script>.*?</script>", "", page, flags=re.S)


def test_text_of_a_prompt_or_a_model_is_text_and_never_markup(page, run):
    reader = Reader(page)
    assert not {"b", "img", "iframe"} & set(reader.tags)
    assert not any(script.lstrip().startswith("alert") for script in reader.scripts)
    assert html.escape(run.prompt) in page
    for result in run.results[:5]:
        assert html.escape(result.text) in page


def test_the_report_holds_the_run_it_draws(page, run):
    (call,) = [s for s in Reader(page).scripts if s.startswith("Workbench.show(")]
    view = json.loads(call.removeprefix('Workbench.show(document.getElementById("panels"), ').removesuffix(");"))
    panels = [json.loads(panel) for panel in view["panels"]]
    assert [p["decoder"] for p in panels] == run.decoders
    assert panels[0]["tokens"][0]["text"] == run.results[0].tokens[0].text


def test_the_report_says_what_it_was_measured_on(page, run):
    names = dict(facts(run))
    assert names["prompt"] == run.prompt
    assert {"device", "dtype", "torch", "transformers", "target", "temperature", "mtad"} <= set(names)
    assert html.escape(names["platform"]) in page


def test_there_is_a_writer_for_each_kind_of_file(run):
    assert list(WRITERS) == ["json", "csv", "html"]
    assert all(isinstance(write(run), str) for write in WRITERS.values())
