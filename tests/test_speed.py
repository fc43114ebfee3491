"""Commands that measure, as notes, docs and the Makefile name them, are there and run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").glob("*.md")]
PAGES += [*(ROOT / "notes").glob("*.md"), *(ROOT / "tools").glob("*.py")]


def test_every_command_of_a_page_is_there():
    named = {
        name
        for page in PAGES
        for name in re.findall(r"python\s+-m\s+tests\.speed(?:\.(\w+))?", page.read_text("utf-8"))
    }
    assert named - {""} <= {file.stem for file in (ROOT / "tests" / "speed").glob("*.py")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["engine", "nucleus", "claims", "drafts", "smollm2", "gpu"])
def test_each_runs_in_its_least_form(name):
    """That of a GPU on a CPU, so it is never first tried on a card; the page's needs Chromium."""
    run = subprocess.run(
        [sys.executable, "-m", f"tests.speed.{name}", "--tiny"], cwd=ROOT, capture_output=True,
        text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILED" not in run.stdout
