import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAILS = """
def test_that_fails():
    print("\\udc00")
    assert "\\ud800" == ""


def test_after_it():
    pass
"""


def test_a_failure_with_half_a_character_is_shown_and_the_rest_still_runs(tmp_path):
    """xdist cannot send a lone surrogate: a failure that held one ended all processes.

    There was an INTERNALERROR, 1,250 tests never ran, and nothing said which test had failed."""
    (tmp_path / "test_halves.py").write_text(FAILS)
    flags = ["-p", "tests.reports", "-p", "no:cacheprovider", "-n", "1"]
    command = [sys.executable, "-m", "pytest", *flags, tmp_path]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 failed, 1 passed" in ended.stdout
    assert r"assert '\ud800' == ''" in ended.stdout
    assert "INTERNALERROR" not in ended.stdout + ended.stderr
