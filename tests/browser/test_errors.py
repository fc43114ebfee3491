"""Failures while a visitor watches: a sentence, Run is back, and the next run works.

The tests in tests/workbench/page try every pair."""

from collections.abc import Iterator

import gradio as gr
import pytest
import torch
from playwright.sync_api import Page, expect

from tests.browser.actions import link, press_run, run
from tests.browser.conftest import visits
from workbench.runs.events import Finished

ERRORS = [
    (gr.Error("You have exceeded your GPU quota."), None, "You have exceeded your GPU quota."),
    (torch.OutOfMemoryError("CUDA out of memory"), Finished, "The device ran out of memory"),
    (
        KeyError("layers.3"),
        Finished,
        "Something went wrong (KeyError); the server's log says more. Try again.",
    ),
]


@pytest.fixture(scope="module")
def page(chromium, address) -> Iterator[Page]:
    with visits(chromium) as visit:
        page = visit(link(address, "Once", decoders="greedy", max_new_tokens=4))
        expect(page.locator("#prompt textarea")).to_have_value("Once")
        run(page)  # a link runs by itself; the tests press Run
        yield page


@pytest.mark.parametrize(("error", "after", "says"), ERRORS, ids=["quota", "memory", "key"])
def test_a_device_that_breaks_down(page, server, monkeypatch, error, after, says):
    _, host = server
    works = host.device.run

    def breaks(*asked):
        if after is None:
            raise error
        for event in works(*asked):
            yield event
            if isinstance(event, after):
                raise error

    with monkeypatch.context() as patch:
        patch.setattr(host.device, "run", breaks)
        press_run(page)
        expect(page.locator("#progress [role=alert]")).to_contain_text(says)
        expect(page.locator("#run")).to_be_visible()
    for gone in ("#stop", "#leave"):
        expect(page.locator(gone)).to_be_hidden()
    expect(page.get_by_test_id("toast-body")).to_have_count(0)
    run(page)
