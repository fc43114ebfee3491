"""Charts, tables and texts of a report and of the page: nothing overlaps or is cut off. At any
width and on paper."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from workbench.runs.record import Run
from workbench.runs.store import id_of, recorded, recordings
from workbench.show.view import WRITERS

FIVE, ALL = recordings()[0], recorded(id_of("all"))
PAPER = 718  # px: A4 with margins of 10 mm

FAULTS = """() => {
    const faults = [], edge = document.documentElement.clientWidth + 1;
    for (const chart of document.querySelectorAll(".js-plotly-plot")) {
        const box = chart.getBoundingClientRect();
        const texts = [...chart.querySelectorAll(".main-svg text")]
            .map((text) => [text.textContent, text.getBoundingClientRect()])
            .filter(([, at]) => at.width > 0);
        if (texts.length < 2) faults.push("an empty chart");
        for (const [text, at] of texts)
            if (at.right > Math.min(edge, box.right + 2) || at.left < box.left - 2)
                faults.push(`${text} is cut off`);
    }
    return faults;
}"""
# Each chart is as wide as its place: a resize is drawn some moments later.
FITS = """() => [...document.querySelectorAll(".js-plotly-plot")]
    .filter((plot) => plot.offsetParent).every((plot) => Math.abs(
        plot.querySelector(".main-svg").getBoundingClientRect().width - plot.clientWidth) < 2)"""
CUT_ON_PAPER = """() => {
    const edge = document.documentElement.clientWidth + 1, cut = [];
    for (const part of document.querySelectorAll(
        "#figures table, .wb-report .wb-table table, .wb-panel, .js-plotly-plot"))
        if (part.getBoundingClientRect().right > edge) cut.push(part.className || part.tagName);
    return cut;
}"""


@pytest.fixture(scope="module")
def runs(run) -> dict[str, Run]:
    """Runs with laps and with repeats, of one decoder, of five and of all."""
    five, everything = FIVE.run, ALL.run
    return {
        "one": replace(five, results=five.results[:1]),
        "five": five,
        "all": everything,
        "repeats": run,
    }


@pytest.fixture
def report(chromium, tmp_path, runs, request) -> Iterator[Page]:
    """The HTML file of a run, opened from the disk."""
    file: Path = tmp_path / "report.html"
    file.write_text(WRITERS["html"](runs[request.param]), "utf-8")
    context = chromium.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.locator(".wb-panel").first).to_be_visible()
    yield page
    context.close()


@pytest.mark.parametrize("report", ["one", "five", "all", "repeats"], indirect=True)
def test_charts_of_a_report_read_at_any_width_and_on_paper(report):
    """With 15 decoders, values and names overlapped and every second name was missing. On paper,
    columns were cut and 2 of 5 rows were there."""
    for width in (1400, 768, 390):
        report.set_viewport_size({"width": width, "height": 900})
        report.wait_for_function(FITS)
        assert report.evaluate(FAULTS) == [], width
        assert report.evaluate("document.documentElement.scrollWidth") <= width
    report.set_viewport_size({"width": PAPER, "height": 1000})
    report.emulate_media(media="print")
    report.wait_for_function(FITS)
    assert report.evaluate(FAULTS) == []
    assert report.evaluate(CUT_ON_PAPER) == []
