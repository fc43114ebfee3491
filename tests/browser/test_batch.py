"""The Batch tab: measure, look, stop, and bring a file of one's own."""

import csv
import io
import re

import pytest
from playwright.sync_api import Page, expect


@pytest.fixture
def tab(visit, address) -> Page:
    page = visit(address)
    page.get_by_role("tab", name="Batch").click()
    page.locator("#batch-count input").fill("3")
    page.locator("#batch-settings button").first.click()
    page.wait_for_timeout(1000)  # a fold that opens for the first time fills its fields in once more
    page.locator("#batch-settings").get_by_label("max new tokens").fill("6")
    for size in (4, 8, 16):
        toggle(page, "sizes", str(size))
    toggle(page, "sizes", "2")
    return page


def toggle(page: Page, group: str, label: str) -> None:
    page.locator(f"#batch-{group} label").filter(has_text=re.compile(rf"^\s*{label}\s*$")).click()


def measure(page: Page) -> None:
    page.locator("#batch-run").click()
    expect(page.locator("#batch-progress")).to_contain_text(re.compile("Done|Stopped"), timeout=60_000)


def test_every_way_is_measured_shown_and_taken_home(tab):
    measure(tab)
    expect(tab.locator("#batch-verdict")).to_contain_text("Identical tokens in every way")
    tab.locator("#batch-figures").scroll_into_view_if_needed()
    expect(tab.locator("#batch-figures")).to_contain_text("unpadded cache")
    expect(tab.locator("#batch .main-svg").first).to_be_visible()
    expect(tab.locator("#batch-paper h3")).to_contain_text("lookup: tokens/s")
    with tab.expect_download() as download:
        tab.locator("#batch-downloads a", has_text="CSV").click()
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert len(rows) == 15  # 3 alone; two baselines and two decoders in five ways
    assert {r["way"] for r in rows if r["decoder"] == "lookup"} == {
        "vanilla", "unpadded_kv", "unpadded_inputs", "unpadded", "dynamic",
    }  # fmt: skip
    assert {r["differing"] for r in rows} == {"0"}
    tab.locator("#batch-decoding input").check()
    expect(tab.locator("#batch .legendtext", has_text="both, dynamic")).to_have_count(0)
    expect(tab.locator("#batch-paper")).not_to_contain_text("both, dynamic")


def test_stop_keeps_what_is_finished(tab):
    toggle(tab, "prompts", "Openings of stories")
    tab.locator("#batch-settings").get_by_label("max new tokens").fill("300")
    tab.locator("#batch-run").click()
    expect(tab.locator("#batch-progress .wb-track")).to_be_visible()
    tab.locator("#batch-stop").click()
    expect(tab.locator("#batch-progress")).to_contain_text("Stopped")
    expect(tab.locator("#batch-run")).to_be_visible()


def test_a_file_of_ones_own(tab, tmp_path):
    toggle(tab, "prompts", "A file of yours")
    tab.locator("#batch-run").click()
    alert = tab.locator("#batch-progress [role=alert]")
    expect(alert).to_have_text("No file is chosen; choose one, or take a built-in set.")
    bad, good = tmp_path / "bad.txt", tmp_path / "good.jsonl"
    bad.write_bytes(b"fine\n\xff")
    tab.locator("#batch-file input[type=file]").set_input_files(bad)
    expect(tab.locator("#batch-file")).to_contain_text("bad")
    tab.locator("#batch-run").click()
    expect(alert).to_have_text("bad.txt, line 2: not text in UTF-8; save the file as plain text in UTF-8.")
    tab.locator("#batch-file").get_by_label(re.compile("Clear|Remove")).first.click()
    good.write_text('{"prompt": "<img src=x onerror=window.hacked=1>"}\n{"prompt": "b"}\n')
    tab.locator("#batch-file input[type=file]").set_input_files(good)
    expect(tab.locator("#batch-file")).to_contain_text("good")
    measure(tab)
    tab.get_by_role("button", name="Environment").last.click()
    expect(tab.locator("#batch-environment")).to_contain_text("good.jsonl")
    assert tab.evaluate("window.hacked") is None


def test_bad_numbers_are_told_in_a_sentence(tab):
    for size in ("1", "2"):
        toggle(tab, "sizes", size)
    tab.locator("#batch-run").click()
    expect(tab.locator("#batch-sizes")).to_contain_text("No batch size is chosen; choose at least one.")
    expect(tab.locator("#batch-run")).to_be_visible()
    toggle(tab, "sizes", "2")
    budget = tab.get_by_label("cache mb")
    budget.fill("much")
    tab.locator("#batch-run").click()
    expect(tab.locator("#batch-settings")).to_contain_text("cache_mb must be")
    expect(tab.locator("#batch-decoders")).to_contain_text("cache_mb must be")  # the fold may be shut
    budget.fill("0.01")
    tab.locator("#batch-run").click()
    expect(tab.locator("#batch-ways")).to_contain_text("leave out vanilla, unpadded cache, unpadded inputs")
    expect(budget).to_have_value("0.01")


def test_a_memory_budget_bounds_what_runs_at_once(tab):
    for way in ("vanilla", "unpadded cache", "unpadded inputs"):
        toggle(tab, "ways", way)
    budget = tab.get_by_label("cache mb")
    budget.fill("0.01")
    tab.locator("#batch-run").click()
    alert = tab.locator("#batch-progress [role=alert]")
    expect(alert).to_contain_text(re.compile(r"^refrains.jsonl, line \d: with \w+ its \d+ tokens"))
    least = re.search(r"give at least ([\d.]+),", alert.inner_text()).group(1)
    budget.fill(least)
    tab.get_by_label("prefill chunk").fill("64")
    measure(tab)
    with tab.expect_download() as download:
        tab.locator("#batch-downloads a", has_text="CSV").click()
    with open(download.value.path(), newline="") as file:
        cells = {(c["decoder"], c["batch_size"]): int(c["at_once"]) for c in csv.DictReader(file)}
    assert cells["speculative", "2"] == 1
    tab.get_by_role("button", name="Environment").last.click()
    expect(tab.locator("#batch-environment")).to_contain_text("prefill_chunk")
