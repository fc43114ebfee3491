"""The element of the picture holds a run's data, whatever texts are in it."""

import json
from dataclasses import replace
from html.parser import HTMLParser

from decoders import catalog
from workbench.runs.recorded import id_of, recorded
from workbench.show.panel import run_panels, source
from workbench.show.picture import BLANK, picture

RUN = recorded(id_of("story")).run
HOSTILE = """'"><img src=x onerror=alert(1)></wb-picture><script>&amp;&#39;"""


class Reader(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_data_survives_its_attribute_and_stays_data():
    run = replace(RUN, study={**RUN.study, "prompt": HOSTILE}, title=HOSTILE)
    found = Reader(picture(run, state="lookup")).found
    assert {tag for tag, _ in found} == {"wb-picture", "noscript", "p"}
    shown = json.loads(found[0][1]["data-shown"])
    assert shown["panels"] == [json.loads(panel) for panel in run_panels(run)]
    assert shown["panels"][0]["prompt"] == HOSTILE
    assert (shown["run"], shown["state"], shown["play"]) == (RUN.id, "lookup", False)
    assert shown["settings"]["temperature"] == RUN.settings["temperature"]


def test_a_run_of_another_kind_has_no_picture():
    assert picture(replace(RUN, results=[])) == ""
    assert json.loads(Reader(BLANK).found[0][1]["data-shown"]) == {"panels": []}


def test_a_draft_comes_from_where_its_decoder_takes_it():
    wanted = {
        "greedy": "", "beam_search": "", "speculative": "model", "dsbd": "model", "mtad": "model",
        "lookup": "text", "suffix": "text", "ngram": "counts", "recycling": "counts",
        "best_first": "model",
    }  # fmt: skip
    assert {name: source(catalog[name]()) for name in wanted} == wanted
    assert source(catalog["best_first"](by="head")) == "head"
    assert source(catalog["best_first"](by="ngram")) == "counts"
