"""The page shows the settings of its address, and names those that it cannot."""

import dataclasses
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import gradio as gr
import pytest

from tests.workbench.page.conftest import OnePair, a_host
from tests.workbench.page.visitor import Visitor
from workbench.models.presets import PairChoice
from workbench.page import frame
from workbench.page.layout import build
from workbench.runs.store import recordings
from workbench.show import web
from workbench.studies import settings as presets


@pytest.fixture
def visit(house):
    return lambda query: Visitor(house[1], query)


def notice(visitor: Visitor) -> str:
    field = visitor.find("notice")
    assert visitor.breakdowns == []
    return visitor.value(field) or "" if visitor.visible(field) else ""


def selected(visitor: Visitor) -> str | None:
    outer, inner = [b for b in visitor.page.blocks.values() if isinstance(b, gr.Tabs)][:2]
    name = visitor.told(outer, "selected")
    return visitor.told(inner, "selected") if name == "lab" else name


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("temperatur=0.5", "temperature"), ("max_new_tokens=" + "9" * 5000, "max_new_tokens")],
)
def test_what_is_misspelt_is_named_and_the_rest_is_kept(visit, wrong, says):
    visitor = visit(f"prompt=Twice&{wrong}&seed=7")
    assert says in notice(visitor)
    assert notice(visitor).count('role="alert"') == 1
    assert visitor.value("prompt") == "Twice"
    assert "seed=7" in visitor.value("settings-link")


def shared(visitor: Visitor, prefix: str) -> dict[str, str]:
    """The parameters of the link to the settings of a tab."""
    link = visitor.value(f"{prefix}settings-link")
    return dict(parse_qsl(html.unescape(link.partition('href="?')[2].partition('"')[0])))


def setting(visitor: Visitor, prefix: str, label: str) -> Any:
    """The input of a shared setting in a tab."""

    def ancestors(block: Any) -> Iterator[Any]:
        while (block := block.parent) is not None:
            yield block

    form = visitor.find(f"{prefix}settings")
    within = [block for block in visitor.page.blocks.values() if form in ancestors(block)]
    return next(block for block in within if getattr(block, "label", None) == label)


def test_a_link_to_settings_holds_only_what_differs(visit):
    """Links of Draws and Batch repeated their forms' own values, also all sizes and schemes."""
    visitor = visit("")
    for prefix, kind in (("draw-", "draw"), ("batch-", "batch")):
        visitor.put(setting(visitor, prefix, "seed"), 7)
        link = shared(visitor, prefix)
        assert link.pop("prompt", presets.PROMPTS["A story"]) == presets.PROMPTS["A story"]
        own = {name: value for name, value in link.items() if "." not in name}
        assert own == {"kind": kind, "seed": "7"}
    assert "decoders" not in shared(visitor, "")
    assert selected(visit("kind=batch")) == "batch"


@pytest.mark.parametrize("prefix", ["draw-", "batch-"])
def test_a_link_brings_back_a_setting_whose_default_the_form_does_not_show(visit, prefix):
    """Temperature 1, the default of all settings, was left out of the link. Draws then opened with
    .7, Batch with 0."""
    visitor = visit("")
    visitor.put(setting(visitor, prefix, "temperature"), 1)
    again = visit(urlencode(shared(visitor, prefix)))
    assert again.value(setting(again, prefix, "temperature")) == 1


@pytest.mark.parametrize(
    "asked", ["", "prompt=Twice&", "kind=batch&", f"run={recordings()[0].run.id}&"]
)
def test_an_address_names_a_tab_whatever_else_it_asks_for(visit, asked):
    assert selected(visit(f"{asked}tab=theory")) == "theory"
    assert selected(visit(f"{asked}tab=<b>")) == selected(visit(asked))


def test_a_run_that_is_gone_or_of_another_kind_is_one_sentence(visit, house, run):
    gone = "There is no run &#x27;&lt;b&gt;&#x27;; it may have been deleted."
    assert gone in notice(visit("run=<b>"))
    house[0].store.save(dataclasses.replace(run, id="abc", kind="experiment"))
    assert "no tab for runs of the kind &#x27;experiment&#x27;" in notice(visit("run=abc"))
    house[0].store.delete("abc")


def test_without_models_the_page_says_what_to_do(house, visit, monkeypatch):
    monkeypatch.setattr(house[0], "fault", "There are no weights; run `make train`.")
    assert "make train" in notice(visit(""))


def test_who_asks_for_nothing_sees_a_recorded_run_and_the_form_that_repeats_it(
    visit, house, monkeypatch
):
    """The page opened empty. No model may compute for it."""
    monkeypatch.setattr(house[0].device, "run", lambda *_: pytest.fail("a model ran"))
    visitor, first = visit("utm_source=news"), recordings()[0].run
    assert notice(visitor) == ""
    assert f"Recorded on {first.created[:10]}" in visitor.value("headline")
    assert len(visitor.value("panels")["panels"]) == len(first.decoders)
    assert visitor.value("prompt") == first.title
    assert sorted(visitor.ticked("decoders")) == sorted(first.settings["decoders"])
    assert visitor.value("preset") == "as the page opens"
    assert 'id="picture"' in visitor.value("band-picture")


def test_an_example_of_a_head_fills_the_form_with_what_another_pair_can_run(
    pair, tmp_path, monkeypatch
):
    """Run, pressed below the recorded run of SmolLM2, was refused by a pair without a head."""

    def drafts(first):
        page = build(dataclasses.replace(a_host(pair, tmp_path), first=first))
        visitor = Visitor(page)
        assert visitor.value("prompt") == recordings()[0].run.title
        own = visitor.value("decoders-own")["own"]
        return [settings.get("draft") for settings in own.values()]

    assert pair.head is None
    assert "suffix, else head" not in drafts(PairChoice())
    monkeypatch.setattr(OnePair, "peek", lambda *_: None)  # not loaded yet
    assert "suffix, else head" not in drafts(PairChoice("a", "b"))
    assert "suffix, else head" in drafts(PairChoice())


def test_the_second_visitor_sees_what_the_first_one_saw(visit):
    """The panels of a recorded run are drawn once and handed out as copies. Gradio takes the values
    out of updates."""
    address = f"run={recordings()[0].run.id}"
    visit(address).press("open-run")
    second = visit(address)
    for name in ("headline", "band-picture", "panels", "chart-0", "figures"):
        assert second.value(name), name
    assert second.value("panels")["run"] == recordings()[0].run.id


def test_a_link_to_settings_runs_at_once_and_one_to_a_batch_waits(visit):
    """It opened a page with a form and nothing below it, and a stranger took it for broken."""
    visitor = visit("prompt=Twice")
    assert visitor.value("address") == {"go": ""}
    visitor = visit("kind=batch&decoders=greedy")
    assert visitor.value("address") is None
    assert "Press Run to see" in visitor.value("batch-progress")


def test_a_link_means_what_it_meant_before_the_page_opened_on_other_sampling(visit):
    visitor = visit("prompt=Twice")
    assert visitor.value("preset") == "sampling T=1"
    assert not visitor.value("headline")
    link = visitor.value("settings-link")
    assert "temperature" not in link
    assert "top_p" not in link


def test_old_links_mean_the_librarys_settings_and_new_ones_name_what_is_tuned(
    pair, tmp_path, monkeypatch
):
    """Both open with the settings that their maker saw."""
    monkeypatch.setattr(frame, "tuned", lambda *_: {"speculative": {"draft_length": 6}})
    page = build(a_host(pair, tmp_path))
    old = Visitor(page, "prompt=Twice&decoders=greedy,speculative")
    assert shared(old, "") == {"prompt": "Twice", "decoders": "greedy,speculative"}
    fresh = Visitor(page)
    for prefix in ("draw-", "batch-"):
        link = shared(fresh, prefix)
        assert link["speculative.draft_length"] == "6"
        assert shared(Visitor(page, urlencode(link)), prefix) == link
        link.pop("speculative.draft_length")
        assert shared(Visitor(page, urlencode(link)), prefix) == link


def test_no_script_of_the_page_looks_for_what_gradio_names():
    """The address read `.tab-container` and `data-tab-id`, the queue's line `.progress-text`."""
    files = (Path(gr.__file__).parent / "templates" / "frontend" / "assets").iterdir()
    texts = [each.read_text("utf-8", "ignore") for each in files if each.suffix in (".css", ".js")]

    def theirs(name: str) -> bool:
        marked = re.compile(rf"\.{name}\.svelte-|(?<![\w-]){name} (?:[\w -]* )?svelte-")
        return any(name in text and marked.search(text) for text in texts)

    assert theirs("tab-container")
    assert theirs("progress-text")
    asks = r"(?:querySelector(?:All)?|closest|matches)(?:\?\.)?\(([\"'`])(.*?)\1"
    for name in ("address.js", "page.js"):
        asked = " ".join(found[1] for found in re.findall(asks, (web.WEB / name).read_text()))
        assert not [*filter(theirs, {*re.findall(r"\.([a-zA-Z][\w-]*)", asked)})]
        assert "data-tab-id" not in asked
        assert "data-testid" not in asked


@pytest.mark.parametrize("sent", [None, [[]], "query", 3])
def test_an_address_that_a_client_made_up_asks_for_nothing(house, sent):
    """A list in place of what the browser asks for was a traceback in the server's log."""
    address = next(each for each in house[1].blocks.values() if each.elem_id == "address")
    assert address.preprocess(sent) == {}
    assert address.preprocess({"tab": "runs"}) == {"tab": "runs"}
