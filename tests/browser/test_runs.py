"""Runs outlive the server; what goes out as a file comes back in."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import link, open_share, panel, run, setting, text_of, unfold_form
from tests.browser.conftest import serving
from tests.workbench.conftest import draw_run  # noqa: F401 - a fixture
from workbench.kinds.comparison import Comparison
from workbench.measuring import session
from workbench.runs.record import Run
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


def test_a_report_asks_nobody_a_file_is_imported_and_runs_are_deleted_if_the_visitor_agrees(
    visit, pair, tmp_path
):
    with serving(pair, tmp_path) as (address, host):
        page = visit(link(address, "Once", decoders="greedy,mtad", max_new_tokens=8))
        id = run(page)
        open_share(page)
        with page.expect_download() as download:
            page.locator("#run-link").get_by_role("link", name="HTML").click()
        download.value.save_as(tmp_path / "report.html")
        (tmp_path / "run.json").write_text(host.store.get(id).dumps())
        page.get_by_role("tab", name="Runs").click()
        give(page, tmp_path / "run.json")  # there is a run with this id: the import gets another
        expect(page.locator("#run-link a").first).not_to_have_text(f"run {id}")
        page.get_by_role("tab", name="Runs").click()
        boxes = page.locator("#past-runs input")
        expect(boxes).to_have_count(2)
        boxes.nth(0).focus()
        for key in ("Space", "Tab", "Tab", "Space"):  # by the link of its title
            page.keyboard.press(key)
        for agrees, ticked in ((False, 2), (True, 0)):
            answer = "accept" if agrees else "dismiss"
            page.once("dialog", lambda dialog, answer=answer: getattr(dialog, answer)())
            page.get_by_role("button", name="Delete").click()
            page.wait_for_timeout(500)
            expect(page.locator("#past-runs input:checked")).to_have_count(ticked)
            assert len(host.store.list()) == ticked
        expect(page.locator("#runs-note")).to_contain_text("Deleted 2 runs.")

        report, asked = page.context.new_page(), []
        report.on("pageerror", lambda error: asked.append(str(error)))
        report.on("request", lambda request: asked.append(request.url))
        report.goto((tmp_path / "report.html").as_uri())
        expect(report.locator(".wb-panel")).to_have_count(2)
        expect(report.locator(".js-plotly-plot").first).to_be_visible()
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
        page.context.close()


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


def test_two_runs_compared_fit_on_a_phone(page, past):
    """The last column was cut off, and names of settings were broken within a word."""
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
    expect(page.locator("#compared th").filter(has_text="B").last).to_be_visible()
    cut = (
        '() => [...document.querySelectorAll("#compared .wb-table")].some((box) => '
        "box.scrollWidth > box.clientWidth)"
    )
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert not page.evaluate(cut), width


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
        small = replace(past, results=past.results[:1])
        for i in range(120):
            host.store.save(replace(small, id=f"a{i:x}", title=f"Tale {i}" if i else LONG))
        yield address
