"""The Batch tab: measure, look, stop, link, reopen, and bring a file of one's own."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.actions import finished, link, open_lab, press_run, toggle
from tests.browser.conftest import visits

FEW = (
    "kind=batch&count=3&sizes=1,2&decoders=lookup,speculative"
    "&max_new_tokens=6&temperature=0&timings=1"
)


@pytest.fixture
def tab(visit, address) -> Page:
    return few(visit, address)


@pytest.fixture(scope="module")
def page(chromium, address) -> Iterator[Page]:
    """The same, for all tests of what is typed into its fields."""
    with visits(chromium) as visit:
        yield few(visit, address)


def few(visit, address: str) -> Page:
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
    expect(again.locator("#batch-count input")).to_have_value("3")
    again.set_viewport_size({"width": 390, "height": 844})
    assert again.evaluate("document.documentElement.scrollWidth") <= 390


def test_stop_ends_the_job_of_its_own_tab_and_keeps_what_is_finished(visit, address, server):
    """One visitor runs a comparison while a batch waits: each tab has its own Stop and Leave."""
    page = visit(
        link(address, "Once", decoders="greedy,speculative", max_new_tokens=400, repeats=100)
    )
    expect(page.locator("#progress")).to_contain_text("token")
    open_lab(page, "Batch")
    page.locator("#batch-run").click()
    expect(page.locator("#batch-leave")).to_be_visible()
    expect(page.locator("#batch-progress")).to_contain_text("Waiting for the device")
    page.get_by_role("tab", name="Compare").click()
    page.locator("#stop").click()
    expect(page.locator("#progress")).to_contain_text("Stopped")
    expect(page.locator("#run")).to_be_visible()
    open_lab(page, "Batch")
    expect(page.locator("#batch-progress .wb-track")).to_be_visible()  # it runs now
    page.get_by_role("tab", name="Compare").click()
    press_run(page)
    expect(page.locator("#leave")).to_be_visible()
    open_lab(page, "Batch")
    page.locator("#batch-stop").click()
    expect(page.locator("#batch-progress")).to_contain_text("Stopped")
    expect(page.locator("#batch-run")).to_be_visible()
    page.get_by_role("tab", name="Compare").click()
    expect(page.locator("#progress")).to_contain_text("token")  # and now this one
    page.locator("#stop").click()
    expect(page.locator("#run")).to_be_visible()


def test_a_file_of_ones_own(tab, tmp_path):
    toggle(tab, "batch-prompts", "Your own file")
    tab.locator("#batch-run").click()
    expect(tab.locator("#batch-prompts")).to_contain_text(
        "No file is chosen; choose one, or take a built-in set."
    )
    bad, good, note = tmp_path / "bad.txt", tmp_path / "good.jsonl", tab.locator("#batch-file-note")
    bad.write_bytes(b"fine\n\xff")
    tab.locator("#batch-file input[type=file]").set_input_files(bad)
    expect(note).to_have_text(
        "bad.txt, line 2: not text in UTF-8; save the file as plain text in UTF-8."
    )
    tab.locator("#batch-file").get_by_label(re.compile("Clear|Remove")).first.click()
    expect(note).to_have_text("")
    good.write_text('{"prompt": "<img src=x onerror=window.hacked=1>"}\n{"prompt": "b"}\n')
    tab.locator("#batch-file input[type=file]").set_input_files(good)
    expect(note).to_have_text("good.jsonl: 2 prompts")
    measure(tab)
    tab.get_by_role("button", name="Environment").last.click()
    expect(tab.locator("#batch-environment")).to_contain_text("good.jsonl")
    assert tab.evaluate("window.hacked") is None
    tab.reload()
    expect(tab.locator("#batch-file-note")).to_have_text("good.jsonl: 2 prompts")


def test_a_path_that_a_client_sends_is_not_read(address):
    """The handler of an uploaded file takes only files that were uploaded."""
    handlers = httpx.get(f"{address}config", timeout=60).json()["dependencies"]
    upload = next(
        h["id"]
        for h in handlers
        if [t[1] for t in h["targets"]] == ["upload"] and len(h["outputs"]) == 2
    )

    def read(path: str) -> httpx.Response:
        data = [{"path": path, "meta": {"_type": "gradio.FileData"}}]
        body = {"data": data, "fn_index": upload, "session_hash": "a client"}
        return httpx.post(f"{address}gradio_api/run/predict", json=body)

    [mine] = httpx.post(
        f"{address}gradio_api/upload", files={"files": ("mine.txt", b"one\ntwo\n")}
    ).json()
    assert "mine.txt: 2 prompts" in read(mine).text
    for path in ("/etc/passwd", str(Path(__file__))):
        answer = read(path)
        assert answer.status_code >= 400
        assert "prompts" not in answer.text


def test_bad_numbers_are_told_in_a_sentence(page):
    """The sentence lay over the very boxes that it asked to untick, where no click reached them."""
    for size in ("1", "2"):
        toggle(page, "batch-sizes", size)
    page.locator("#batch-run").click()
    expect(page.locator("#batch-sizes")).to_contain_text(
        "No batch size is chosen; choose at least one."
    )
    expect(page.locator("#batch-run")).to_be_visible()
    toggle(page, "batch-sizes", "2")
    budget = page.get_by_label("cache mb")
    budget.fill("much")
    page.locator("#batch-run").click()
    expect(page.locator("#batch-settings")).to_contain_text("cache_mb must be")
    # the fold may be shut
    expect(page.locator("#batch-decoders")).to_contain_text("cache_mb must be")
    budget.fill("0.01")
    page.locator("#batch-run").click()
    expect(page.locator("#batch-schemes")).to_contain_text(
        "leave out padded (usual), unpadded cache, unpadded inputs"
    )
    expect(budget).to_have_value("0.01")
    for _ in range(2):
        toggle(page, "batch-schemes", "padded (usual)")


def test_a_memory_budget_bounds_what_runs_at_once(page):
    for scheme in ("padded (usual)", "unpadded cache", "unpadded inputs"):
        toggle(page, "batch-schemes", scheme)
    budget = page.get_by_label("cache mb")
    budget.fill("0.01")
    page.locator("#batch-run").click()
    alert = page.locator("#batch-prompts")
    expect(alert).to_contain_text(re.compile(r"refrains.jsonl, line \d: with \w+ its \d+ tokens"))
    budget.fill(re.search(r"give at least ([\d.]+),", alert.inner_text()).group(1))
    page.get_by_label("prefill chunk").fill("64")
    measure(page)
    cells = {
        (c["decoder"], c["batch_size"]): int(c["at_once"])
        for c in csv.DictReader(io.StringIO(download(page, "CSV")))
    }
    assert cells["speculative", "2"] == 1
    page.get_by_role("button", name="Environment").last.click()
    expect(page.locator("#batch-environment")).to_contain_text("prefill_chunk")
