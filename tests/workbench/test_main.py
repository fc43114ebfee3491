"""The door of the terminal."""

import subprocess
import sys

import pytest

from decoders import catalog
from workbench import __main__ as program


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["compare", "batch", "runs", "--port", "--version"]),
        (["compare"], [*catalog, "examples:", "--decoders", "--html", "--no-save"]),
        (
            ["batch"],
            ["vanilla", "dynamic", "examples:", "--schemes", "--ways", "--html", "--no-save"],
        ),
        (["runs"], ["list", "show", "compare", "export", "import", "delete"]),
        (["runs", "list"], ["--kind", "--search", "--order"]),
    ],
    ids=str,
)
def test_help_names_all_there_is(command, words, capsys):
    with pytest.raises(SystemExit) as end:
        program.main([*command, "--help"])
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert all(word in out for word in words)


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
