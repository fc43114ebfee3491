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
    rounds, race = page.locator(".wb-alone wb-picture").all()
    expect(rounds.locator(".number")).to_have_count(2)
    expect(rounds.locator("[aria-pressed=true]")).to_have_text("Speculative")
    rounds.get_by_label("the round before").click()
    expect(rounds.locator(".says")).to_contain_text("Round ")
    expect(race.locator(".lane.over")).to_have_count(2)
    race.get_by_label("play", exact=True).click()
    expect(race.locator(".lane.over")).to_have_count(0)
    expect(race.locator(".lane.over")).to_have_count(2, timeout=30_000)
    # the next run takes its place
    prompt.fill("The end")
    prompt.press("Enter")
    expect(page.locator("wb-picture .prompt").first).to_have_text("The end", timeout=60_000)
    expect(page.locator(".wb-panel .prompt").first).to_have_text("The end")
