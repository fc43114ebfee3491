"""The contents of a single panel."""

import json
from dataclasses import replace
from html.parser import HTMLParser

from decoders import catalog
from workbench.runs.record import Agreement
from workbench.runs.store import id_of, recorded
from workbench.show.laws import GREEDY
from workbench.show.panel import PROMPT_SHOWN, badge, picture, run_panels, source, waiting


def test_badges():
    same = Agreement("greedy", 1, 0, noise=1e-6, dtype="float32")
    near = Agreement("greedy", 1, 1, 4, 2e-7, 1e-6, True, "float32")
    far = Agreement("greedy", 1, 1, 4, 0.7, 1e-6, False, "float32")
    unknown = Agreement("greedy", 1, 1, 4, None, None, False, "float32")
    assert badge(same)["text"] == "✓ identical to Greedy"
    assert badge(near)["text"] == "≠ near-tie at token 5 (target gap 2e-07 nats)"
    assert badge(far)["text"] == "≠ differs at token 5 (target gap 0.7 nats)"
    assert badge(far)["kind"] == badge(unknown)["kind"] == "differs"
    assert badge(Agreement("greedy", 4, 2))["text"] == "≠ differs"  # where is not known


def test_a_long_prompt_is_cut_on_the_left():
    panel = waiting(catalog["greedy"](), GREEDY, "x" * 1000 + "end")
    assert panel["prompt"].endswith("end")
    assert len(panel["prompt"]) == PROMPT_SHOWN + 1


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


def test_a_draft_comes_from_where_its_decoder_takes_it():
    wanted = {
        "greedy": "", "beam_search": "", "speculative": "model", "dsbd": "model", "mtad": "model",
        "lookup": "text", "suffix": "text", "ngram": "counts", "recycling": "counts",
        "best_first": "model",
    }  # fmt: skip
    assert {name: source(catalog[name]()) for name in wanted} == wanted
    assert source(catalog["best_first"](by="head")) == "head"
    assert source(catalog["best_first"](by="ngram")) == "counts"
