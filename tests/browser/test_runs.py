"""Runs outlive the server; what goes out as a file comes back in."""

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.actions import link, panel, run, text_of
from tests.browser.conftest import serving


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
            assert text_of(page, result.decoder) == result.text
        expect(panel(page, "speculative").locator(".badge")).to_contain_text(re.compile("identical|differs at token"))
        assert panel(page, "mtad").locator(".badge").count() == 0  # it does not claim to be greedy
        expect(page.locator("#prompt textarea")).to_have_value("Once upon")
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

        data["id"] = "0123456789ab"
        second = tmp_path / "second.json"
        second.write_text(json.dumps(data))
        give(page, second)
        expect(page.locator("#run-link a").first).to_have_text("run 0123456789ab")
        page.get_by_role("tab", name="Runs").click()
        boxes = page.locator("#past-runs input")
        expect(boxes).to_have_count(2)
        for box in (boxes.nth(0), boxes.nth(1)):
            box.check()
        page.get_by_role("button", name="Compare two").click()
        for side in ("#run-A", "#run-B"):
            expect(page.locator(side).locator(".wb-panel")).to_have_count(2)

        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Delete").click()
        expect(boxes).to_have_count(0)
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
