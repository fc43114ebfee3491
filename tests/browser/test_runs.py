"""Runs outlive the server; what goes out as a file comes back in."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import link, open_share, panel, run, setting, text_of, unfold_form
from tests.browser.conftest import serving
from tests.workbench.conftest import draw_run  # noqa: F401 - a fixture
from workbench.kinds.comparison import Comparison
from workbench.measuring import session
from workbench.runs.record import Run
from workbench.show.view import to_html
from workbench.studies.settings import Settings


def test_a_link_outlives_the_server(visit, pair, tmp_path):
    with serving(pair, tmp_path) as (address, host):
        page = visit(
            link(
                address,
                "Once upon",
                decoders="greedy,speculative,mtad",
                max_new_tokens=12,
                temperature=0,
            )
        )
        id = run(page)
        page.context.close()
        kept = host.store.get(id)
    with serving(pair, tmp_path) as (address, _):
        page = visit(f"{address}?run={id}")
        for result in kept.results:
            expect(panel(page, result.decoder)).to_have_attribute("data-status", "done")
            assert text_of(page, result.decoder) == result.alone.text
        expect(panel(page, "speculative").locator(".badge")).to_contain_text(
            re.compile("identical|differs at token")
        )
        assert panel(page, "mtad").locator(".badge").count() == 0  # it does not claim to be greedy
        expect(page.locator("#prompt textarea")).to_have_value("Once upon")
        unfold_form(page)
        expect(setting(page, "temperature")).to_have_value("0")
        page.context.close()


def give(page: Page, file: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.locator("#import-run").click()
    chooser.value.set_files(file)


def test_export_import_compare_delete(visit, pair, tmp_path):
    with serving(pair, tmp_path) as (address, host):
        page = visit(link(address, "Once", decoders="greedy,mtad", max_new_tokens=8))
        id = run(page)
        files = {}
        open_share(page)
        for kind in ("JSON", "CSV", "HTML"):
            with page.expect_download() as download:
                page.locator("#run-link").get_by_role("link", name=kind).click()
            files[kind] = tmp_path / download.value.suggested_filename
            download.value.save_as(files[kind])
        data = json.loads(files["JSON"].read_text("utf-8"))
        assert data["id"] == id
        assert files["CSV"].read_text("utf-8").count("\n") == 3

        host.store.delete(id)
        page.get_by_role("tab", name="Runs").click()
        give(page, files["JSON"])
        expect(page.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
        expect(page.locator("#run-link a").first).to_have_text(f"run {id}")
        assert host.store.get(id).to_json() == data

        broken = tmp_path / "broken.json"
        broken.write_text('{"format": "something else"}')
        page.get_by_role("tab", name="Runs").click()
        give(page, broken)
        expect(page.locator("#runs-note [role=alert]")).to_be_visible()

        give(page, files["JSON"])  # there is a run with this id: the import gets another
        expect(page.locator("#run-link a").first).not_to_have_text(f"run {id}")
        page.get_by_role("tab", name="Runs").click()
        boxes = page.locator("#past-runs input")
        expect(boxes).to_have_count(2)
        boxes.nth(0).focus()
        page.keyboard.press("Space")
        page.keyboard.press("Tab")  # to the link of its title
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        expect(page.locator("#past-runs input:checked")).to_have_count(2)
        page.get_by_role("button", name="Compare two").click()
        expect(page.locator("#compared .sides")).to_have_count(2)
        expect(page.locator("#compared .asked")).to_contain_text("the same")
        expect(page.locator("#compared")).to_be_focused()
        expect(page.locator("#past-runs input:checked")).to_have_count(2)

        page.once("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("button", name="Delete").click()
        page.wait_for_timeout(500)
        expect(page.locator("#past-runs input:checked")).to_have_count(2)
        assert len(host.store.list()) == 2
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete").click()
        expect(boxes).to_have_count(0)
        expect(page.locator("#runs-note")).to_contain_text("Deleted 2 runs.")
        assert host.store.list() == []

        report = page.context.new_page()
        sins = []
        report.on("pageerror", lambda error: sins.append(str(error)))
        report.on(
            "request",
            lambda request: (
                sins.append(request.url)
                if not request.url.startswith(("file:", "data:", "blob:"))
                else None
            ),
        )
        report.goto(files["HTML"].as_uri())
        expect(report.locator(".wb-panel")).to_have_count(2)
        expect(report.locator(".js-plotly-plot").first).to_be_visible()
        assert sins == []
        page.context.close()


def test_a_report_promises_nothing_that_it_cannot_do(chromium, past, draw_run, tmp_path):  # noqa: F811
    """A report offered to rewind to a token, and its link about drawing led to a closed fold."""
    page = chromium.new_page()
    for each in (past, draw_run):
        (tmp_path / f"{each.id}.html").write_text(to_html(each), "utf-8")
    page.goto((tmp_path / f"{past.id}.html").as_uri())
    page.locator(".wb-panel .wb-text > .tok").first.click()
    expect(page.locator(".wb-branch .own")).to_contain_text("stands here")
    expect(page.locator(".wb-branch")).not_to_contain_text("rewind")
    page.goto((tmp_path / f"{draw_run.id}.html").as_uri())
    expect(page.locator("#draw-proof pre")).to_be_hidden()
    page.locator(".wb-jump a").click()
    expect(page.locator("#draw-proof pre")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator(".wb-jump")).to_be_hidden()
    page.close()


LONG = "word " * 30 + "\u202eunclosed override " + "x" * 200


def test_a_hundred_and_twenty_runs_are_one_column(page):
    """After 8 runs, further ones flowed into columns to the right: 100 runs were 10,273 px wide."""
    page.get_by_role("tab", name="Runs").click()
    boxes = page.locator("#past-runs input")
    expect(boxes).to_have_count(120)
    lefts = (
        "[...document.querySelectorAll('#past-runs input')].map((box) => "
        "box.getBoundingClientRect().left)"
    )
    spilt = """() => {
        const edge = document.querySelector(".wb-runs").getBoundingClientRect().right;
        return [...document.querySelectorAll("#past-runs bdi")]
            .some((text) => text.getBoundingClientRect().right > edge);
    }"""
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert len(set(page.evaluate(lefts))) == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert not page.evaluate(spilt)
    page.locator("#past-runs tbody tr").nth(2).locator(".decoders").click()
    page.get_by_role("textbox", name="Search").fill("tale 117")
    expect(boxes).to_have_count(1)
    ticked = page.locator("#past-runs input:checked")
    expect(ticked).to_have_count(1)  # a search that finds it leaves it ticked
    # once a white tick on white
    assert ticked.evaluate("(box) => getComputedStyle(box).appearance") == "auto"
    page.get_by_role("textbox", name="Search").fill("")
    expect(boxes).to_have_count(120)
    expect(page.locator("#past-runs input:checked")).to_have_count(1)
    page.locator("#open-run").click()
    expect(page.locator("#run-link a").first).to_have_text("run a75")


def test_heads_sort_and_a_title_opens_its_run(page):
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.get_by_role("tab", name="Runs").click()
    titles = page.locator("#past-runs tbody .title")
    expect(titles).to_have_count(120)
    expect(page.locator("#past-runs .count")).to_have_text("120 runs")
    head = page.get_by_role("columnheader", name="prompt")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(titles.first).to_have_text("Tale 1")
    head.get_by_role("button").click()
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(titles.nth(1)).to_have_text("Tale 99")
    page.locator("#past-runs tbody tr", has_text="Tale 117").get_by_role("link").click()
    expect(page.locator("#run-link a").first).to_have_text("run a75")


def test_two_runs_compared_fit_on_a_phone(page, past):
    """The last column, B / A, was cut off, and names of settings were broken within a word."""
    page.set_viewport_size({"width": 1400, "height": 1000})
    page.get_by_role("tab", name="Runs").click()
    page.get_by_role("textbox", name="Search").fill("tale 11")
    boxes = page.locator("#past-runs input")
    expect(boxes).to_have_count(12)  # one of them by its id
    expect(page.locator("#past-runs .decoders small").first).to_have_text("temperature 1, seed 0")
    for box in page.locator("#past-runs input:checked").all():
        box.click()
    boxes.nth(0).click()
    boxes.nth(1).click()
    page.get_by_role("button", name="Compare two").click()
    expect(page.locator("#compared th").filter(has_text="B / A").first).to_be_visible()
    cut = (
        '() => [...document.querySelectorAll("#compared .wb-table")].some((box) => '
        "box.scrollWidth > box.clientWidth)"
    )
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert not page.evaluate(cut), width


def test_a_run_of_hostile_texts_is_listed_and_compared_as_text(visit, pair, past, tmp_path):
    """Token texts may hold markup, controls, unclosed overrides and halves of emoji."""
    texts = [
        "<img src=x onerror=window.hacked=1>",
        "\0",
        "\u202eabc",
        "👩‍👩‍👧",
        "${window.hacked=1}",
        "{{{x}}}",
    ]
    result = past.results[0]
    tokens = [
        dataclasses.replace(result.alone.tokens[0], text=text, id=i, node=90 + i)
        for i, text in enumerate(texts)
    ]
    trials = [
        dataclasses.replace(result.alone.rounds[0].trials[0], text=t, node=90 + i)
        for i, t in enumerate(texts)
    ]
    rounds = [
        dataclasses.replace(
            result.alone.rounds[0], trials=trials, nodes=[t.node for t in trials], keep=0
        )
    ]
    sample = dataclasses.replace(result.alone, tokens=tokens, rounds=rounds, text="".join(texts))
    forged = dataclasses.replace(
        past, id="f0", title=texts[0], results=[dataclasses.replace(result, samples=[sample])]
    )
    with serving(pair, tmp_path) as (address, host):
        host.store.save(past)
        host.store.save(forged)
        page = visit(f"{address}?run=f0")
        panel(page, "greedy").locator(".tok").nth(2).hover()
        expect(page.locator(".wb-card")).to_contain_text("¤abc")
        expect(page.locator("#picture .lane .tok").first).to_be_visible()
        page.get_by_role("tab", name="Runs").click()
        boxes = page.locator("#past-runs input")
        expect(boxes).to_have_count(2)
        boxes.nth(0).click()
        boxes.nth(1).click()
        page.get_by_role("button", name="Compare two").click()
        expect(page.locator("#compared")).to_contain_text(texts[0])
        assert page.evaluate("window.hacked") is None
        assert page.locator("#compared img, #past-runs img").count() == 0
        page.context.close()


@pytest.fixture(scope="module")
def past(pair, unmetered) -> Run:
    """A run of the tests' pair."""
    settings = Settings.from_json({"decoders": ["greedy"], "max_new_tokens": 4, "timings": 1})
    *_, ended = session.run(pair, Comparison("Once", settings), meter=unmetered)
    return ended.run


@pytest.fixture(scope="module")
def address(pair, past, tmp_path_factory) -> Iterator[str]:
    """A server with 120 runs, one of them with a title that is hard to set."""
    with serving(pair, tmp_path_factory.mktemp("many")) as (address, host):
        small = dataclasses.replace(past, results=past.results[:1])
        for i in range(120):
            host.store.save(
                dataclasses.replace(small, id=f"a{i:x}", title=f"Tale {i}" if i else LONG)
            )
        yield address
