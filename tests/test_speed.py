"""The script for a GPU runs on a CPU with small models, so it is never first tried on a card.

EVERYWHERE=1 runs it."""

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(not os.environ.get("EVERYWHERE"), reason="takes minutes; EVERYWHERE=1 runs it")
def test_every_section_runs_without_a_gpu():
    run = subprocess.run(
        [sys.executable, "-m", "tests.speed.gpu", "--tiny"],
        capture_output=True,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILED" not in run.stdout
