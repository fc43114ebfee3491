"""The script for a GPU runs on a CPU with small models, so it is never first tried on a card."""

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_every_section_runs_without_a_gpu():
    run = subprocess.run(
        [sys.executable, "-m", "tests.speed.gpu", "--tiny"],
        capture_output=True,
        text=True,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILED" not in run.stdout
