"""The door of the terminal."""

import subprocess
import sys

import pytest

from workbench import __main__ as program


def test_it_is_a_module_that_runs():
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "batch", "--sizes", "0"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("A batch size must be a whole number")


@pytest.mark.parametrize("port", ["x", "0", "70000", "-1", "8.5"])
def test_a_port_is_a_number_that_ports_have(port, capsys):
    assert program.main([f"--port={port}"]) == 2
    assert capsys.readouterr().err.startswith("--port must be a whole number from 1 to 65535, not ")
