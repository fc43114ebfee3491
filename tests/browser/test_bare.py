"""What a Space runs, here also without the embedded weights.

It runs `python app.py` with SYSTEM=spaces, without git and without a Makefile."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.actions import press_run

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
