"""What a Space runs, here also without the embedded weights. It runs `python app.py` with
SYSTEM=spaces, without git and without a Makefile."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.actions import finished, link, panel, press_run
from tests.browser.conftest import serving
from tests.workbench.conftest import spaces  # noqa: F401 - a fixture
from tests.workbench.page.test_agents import ask

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120  # a busy machine; the bound that users feel is measured by `make bench`


@pytest.fixture
def bare(tmp_path):
    """The address of the app, started from a copy that holds no weights."""
    home = tmp_path / "space"
    for part in ("decoders", "workbench"):
        shutil.copytree(
            ROOT / part, home / part, ignore=shutil.ignore_patterns("__pycache__", "*.pyi")
        )
    shutil.copy(ROOT / "app.py", home)
    environ = {
        **os.environ,
        "SYSTEM": "spaces",
        "WORKBENCH_DATA": str(tmp_path / "data"),
        "GRADIO_SERVER_PORT": "7899",
    }
    process = subprocess.Popen(
        [sys.executable, "app.py"], cwd=home, env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        for line in process.stdout:
            if found := re.search(r"http://\S+:\d+", line):
                yield found[0].replace("0.0.0.0", "127.0.0.1") + "/"
                break
        else:
            pytest.fail("the app ended without giving its address")
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def test_without_weights_it_starts_and_says_what_to_do(bare, visit):
    page = visit(bare)
    expect(page.locator("#notice [role=alert]")).to_contain_text("make train")
    # a prompt typed here does reach a public machine
    expect(page.locator("#footer")).to_contain_text("kept until this Space restarts")
    press_run(page)
    expect(page.locator("#progress [role=alert]")).to_contain_text("make train")


def test_on_zero_gpu_the_same_page_runs_and_agents_too(pair, tmp_path, spaces, visit):  # noqa: F811
    """Whose seconds a study takes was told to nobody: the thread that asked for the GPU knew no
    visitor, so all of them were one without an account."""
    with serving(pair, tmp_path) as (address, host):
        page = visit(link(address, "Once", decoders="greedy,speculative", max_new_tokens=8))
        found = host.store.get(finished(page))
        for result in found.results:
            expect(panel(page, result.decoder)).to_contain_text("8 tokens")
        lane = page.locator('#picture .lane[data-decoder="speculative"]')
        expect(lane).to_contain_text(f"{found.results[1].metrics['target_calls']}passes")
        panel(page, "greedy").locator(".wb-paper > .wb-text > .tok").nth(3).click()
        expect(page.locator(".wb-branch tbody tr").nth(19)).to_be_visible()  # of the models there
        asked = {"prompt": "Once", "decoders": ["greedy"], "settings": {"max_new_tokens": 8}}
        _, (answer,) = ask(address, ("compare", asked))
        assert answer.structuredContent["results"][0]["text"] == found.results[0].alone.text
    run, alternatives, _ = spaces.visitors
    assert spaces.closed == 3
    assert run.session_hash == alternatives.session_hash
