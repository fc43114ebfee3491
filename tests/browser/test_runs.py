"""Runs outlive the server; what goes out as a file comes back in."""

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import link, panel, run, text_of, unfold_form
from tests.browser.conftest import serving
from workbench.measuring import session
from workbench.runs.record import Run
from workbench.studies.comparison import Comparison
from workbench.studies.settings import Settings


def test_a_link_outlives_the_server(visit, pair, tmp_path):
    with serving(pair, tmp_path) as (address, host):
        page = visit(link(address, "Once upon", decoders="greedy,speculative,mtad", max_new_tokens=12, temperature=0))
        id = run(page)
        page.context.close()
        kept = host.store.get(id)
    with serving(pair, tmp_path) as (address, _):
        page = visit(f"{address}?run={id}")
        for result in kept.results:
            expect(panel(page, result.decoder)).to_have_attribute("data-status", "done")
            assert text_of(page, result.decoder) == result.alone.text
        expect(panel(page, "speculative").locator(".badge")).to_contain_text(re.compile("identical|differs at token"))
        assert panel(page, "mtad").locator(".badge").count() == 0  # it does not claim to be greedy
        expect(page.locator("#prompt textarea")).to_have_value("Once upon")
        unfold_form(page)
        page.locator("#settings > button").click()
        expect(page.get_by_label("temperature")).to_have_value("0")
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
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        expect(page.locator("#past-runs input:checked")).to_have_count(2)
        page.get_by_role("button", name="Compare two").click()
        for side in ("#run-A", "#run-B"):
            expect(page.locator(side).locator(".wb-panel")).to_have_count(2)
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
                sins.append(request.url) if not request.url.startswith(("file:", "data:", "blob:")) else None
            ),
        )
        report.goto(files["HTML"].as_uri())
        expect(report.locator(".wb-panel")).to_have_count(2)
        expect(report.locator(".main-svg").first).to_be_visible()
        assert sins == []
        page.context.close()


LONG = "word " * 30 + "\u202eunclosed override " + "x" * 200


@pytest.mark.parametrize("width", [1400, 390])
def test_a_hundred_and_twenty_runs_are_one_column(visit, many, width):
    """After 8 runs further ones flowed into columns off to the right: 100 runs were 10,273 px wide."""
    address = many
    page = visit(address, width, 844)
    page.get_by_role("tab", name="Runs").click()
    boxes = page.locator("#past-runs input")
    expect(boxes).to_have_count(120)
    lefts = page.evaluate(
        "[...document.querySelectorAll('#past-runs input')].map((box) => box.getBoundingClientRect().left)"
    )
    assert len(set(lefts)) == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    spilt = """() => { const edge = document.querySelector(".wb-runs").getBoundingClientRect().right;
        return [...document.querySelectorAll("#past-runs bdi")].some((text) => text.getBoundingClientRect().right > edge); }"""
    assert not page.evaluate(spilt)
    page.locator("#past-runs tbody tr").nth(2).locator(".title").click()
    page.get_by_role("textbox", name="Search").fill("tale 117")
    expect(boxes).to_have_count(1)
    ticked = page.locator("#past-runs input:checked")
    expect(ticked).to_have_count(1)  # a search that finds it leaves it ticked
    assert ticked.evaluate("(box) => getComputedStyle(box).appearance") == "auto"  # once a white tick on white
    page.get_by_role("textbox", name="Search").fill("")
    expect(boxes).to_have_count(120)
    expect(page.locator("#past-runs input:checked")).to_have_count(1)
    page.locator("#open-run").click()
    expect(page.locator("#run-link a").first).to_be_visible()


@pytest.fixture(scope="module")
def past(pair, unmetered) -> Run:
    """A run of the tests' pair."""
    settings = Settings.from_json({"decoders": ["greedy"], "max_new_tokens": 4, "timings": 1})
    *_, ended = session.run(pair, Comparison("Once", settings), meter=unmetered)
    return ended.run


@pytest.fixture(scope="module")
def many(pair, past, tmp_path_factory) -> Iterator[str]:
    """A server with 120 runs, one of them with a title that is hard to set."""
    with serving(pair, tmp_path_factory.mktemp("many")) as (address, host):
        small = dataclasses.replace(past, results=past.results[:1])
        for i in range(120):
            host.store.save(dataclasses.replace(small, id=f"a{i:x}", title=f"Tale {i}" if i else LONG))
        yield address
