"""The Batch tab: measure, look, take home, reopen."""

import csv
import io
import json

import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import finished, toggle

FEW = (
    "kind=batch&count=3&sizes=1,2&decoders=lookup,speculative"
    "&max_new_tokens=6&temperature=0&timings=1"
)


@pytest.fixture
def tab(visit, address) -> Page:
    """The tab, filled by a link; its settings are open."""
    page = visit(f"{address}?{FEW}")
    expect(page.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#batch-figures table").first).to_be_visible()  # the recorded run is there
    page.locator("#batch-form > button").click()
    page.locator("#batch-settings > button").click()
    # a fold that opens for the first time fills its fields in once more
    page.wait_for_timeout(1000)
    expect(page.locator("#batch-count input")).to_have_value("3")
    return page


def measure(page: Page) -> str:
    page.locator("#batch-run").click()
    return finished(page, "batch-")


def download(page: Page, kind: str) -> str:
    with page.expect_download() as found:
        page.locator("#batch-run-link").get_by_role("link", name=kind).click()
    return found.value.path().read_text("utf-8")


def test_every_scheme_is_measured_shown_taken_home_and_reopened(
    tab, visit, address, server, tmp_path
):
    id = measure(tab)
    expect(tab.locator("#batch-verdict")).to_contain_text("Identical tokens in every scheme")
    expect(tab.locator("#batch-figures")).to_contain_text("unpadded cache")
    expect(tab.locator("#batch .main-svg").first).to_be_visible()
    for decoder in ("Speculative", "Prompt lookup"):
        toggle(tab, "batch-decoder", decoder)
        expect(tab.locator("#batch-paper h3")).to_contain_text(f"{decoder}: tokens/s")
    rows = list(csv.DictReader(io.StringIO(download(tab, "CSV"))))
    assert len(rows) == 15  # 3 alone; two baselines and two decoders in five schemes
    assert {r["scheme"] for r in rows if r["decoder"] == "lookup"} == {
        "vanilla", "unpadded_kv", "unpadded_inputs", "unpadded", "dynamic",
    }  # fmt: skip
    assert json.loads(download(tab, "JSON"))["id"] == id
    (tmp_path / "report.html").write_text(download(tab, "HTML"), "utf-8")
    report = tab.context.new_page()
    report.goto((tmp_path / "report.html").as_uri())
    expect(report.locator(".main-svg").first).to_be_visible()
    report.close()
    tab.locator("#batch-decoding input").check()
    expect(tab.locator("#batch-paper")).not_to_contain_text("dynamic batch")

    assert f"run={id}" in tab.url  # a reload brings it back
    again = visit(tab.url)
    expect(again.get_by_role("tab", name="Batch")).to_have_attribute("aria-selected", "true")
    expect(again.locator("#batch-progress")).to_contain_text("Done")
    expect(again.locator("#batch-figures")).to_contain_text("unpadded cache")
    expect(again.locator("#batch")).to_contain_text("3 prompts in batches of 1, 2")
    again.set_viewport_size({"width": 390, "height": 844})
    assert again.evaluate("document.documentElement.scrollWidth") <= 390
