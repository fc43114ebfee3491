"""The components in an app of somebody else's: the documentation's example, run by its reader."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def app() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.small", "docs/examples/components.py"],
        cwd=ROOT,
        env={**os.environ, "GRADIO_SERVER_PORT": port},
        stdout=subprocess.DEVNULL,
    )
    address, began = f"http://127.0.0.1:{port}/", time.monotonic()
    while time.monotonic() - began < 120:
        try:
            urllib.request.urlopen(address).close()
            break
        except OSError:
            assert process.poll() is None
            time.sleep(0.5)
    yield address
    process.terminate()
    process.wait()


@pytest.fixture
def page(chromium, app) -> Iterator[Page]:
    """A visitor of an app that may ask other hosts for its fonts, as Gradio's usual theme does."""
    errors = []
    context = chromium.new_context()
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(app)
    yield page
    context.close()
    assert not errors


def test_the_example_draws_the_texts_the_rounds_and_the_race(page):
    prompt = page.get_by_label("Prompt")
    prompt.fill("Once <b>upon</b> a time")
    page.wait_for_timeout(500)
    prompt.press("Enter")
    expect(page.locator(".wb-panel")).to_have_count(2, timeout=60_000)
    expect(page.locator(".wb-panel .prompt").first).to_have_text("Once <b>upon</b> a time")
    replay, race = page.locator(".wb-alone .wb-replay"), page.locator(".wb-alone .wb-race")
    expect(replay.locator("h3")).to_have_text("Rounds of Speculative")
    expect(replay.locator(".tree svg")).to_be_visible()
    replay.get_by_label("next round").click()
    expect(replay.locator(".caption").first).to_contain_text("Round 2 of")
    expect(race.locator(".lane")).to_have_count(2)
    expect(race.locator(".lane.done")).to_have_count(2, timeout=30_000)
    expect(race).not_to_contain_text("Escape")  # nothing closes what stands by itself
    page.keyboard.press("Escape")
    expect(replay).to_be_visible()
    expect(replay.get_by_label("close the replay")).to_be_hidden()
    # the next run takes its place
    prompt.fill("The end")
    prompt.press("Enter")
    expect(replay.locator(".prompt")).to_have_text("The end", timeout=60_000)
    expect(page.locator(".wb-panel .prompt").first).to_have_text("The end")
