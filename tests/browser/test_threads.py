"""Only the thread that decodes has OpenMP workers, whatever else visitors do."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from playwright.sync_api import expect

from tests.browser.actions import close_form, fill_prompt, link, open_lab, run, unfold_form
from tests.browser.conftest import serving
from workbench.theory import PAGES
from workbench.theory.page import Slider


def native() -> int:
    """Threads of this process that are not Python's: the workers of its pools."""
    return len(os.listdir("/proc/self/task")) - threading.active_count()


@pytest.fixture
def two_threads(monkeypatch) -> Iterator[None]:
    """Threads made from now on may each have a pool of two."""
    monkeypatch.setenv("WORKBENCH_THREADS", "2")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@contextmanager
def computing() -> Iterator[None]:
    """Beside a thread that has computed in parallel."""
    done, over = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: (torch.ones(10**6).exp(), done.set(), over.wait()))
    thread.start()
    done.wait()
    yield
    over.set()
    thread.join()


def test_no_handler_makes_a_pool(two_threads, visit, pair, tmp_path):
    """Moving a slider of the Theory tab once gave one of Gradio's threads another pool. Decoding
    then took twice as long."""
    with serving(pair, tmp_path) as (address, _):
        page = visit(
            link(address, "Once", decoders="greedy,speculative,mtad,dsbd", max_new_tokens=8)
        )
        id = run(page)
        before = native()
        fill_prompt(page, "Twice " * 40)
        unfold_form(page)
        expect(page.locator("#token-count")).to_contain_text("240 of")
        close_form(page)
        for kind in ("json", "csv", "html"):
            assert page.request.get(f"{address}export/{id}.{kind}").ok
        open_lab(page, "Theory")
        page.get_by_label("Compare with one of your runs").click()
        page.get_by_role("option").nth(1).click()
        expect(page.locator(".wb-now:visible").first).to_contain_text("Measured:")
        for paper in PAGES:
            page.get_by_role("tab", name=paper.title).click()
            slider = next(field for field in paper.fields if isinstance(field, Slider))
            box = page.locator(f'input[aria-label="number input for {slider.label}"]:visible')
            with page.expect_response("**/gradio_api/run/**"):
                box.fill(f"{slider.low if slider.high == slider.value else slider.high:g}")
        page.get_by_role("tab", name="Runs").click()
        page.locator("#past-runs input").check()
        page.locator("#open-run").click()
        expect(page.locator("#prompt textarea")).to_have_value("Once")
        assert native() <= before
        with computing():
            assert native() > before  # or this test could not see a pool
        page.context.close()
