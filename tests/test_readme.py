"""What the README shows must be so."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from decoders.__main__ import table

README = Path(__file__).parents[1] / "README.md"


def example(beginning: str) -> str:
    """The Python block of the README that begins like this."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    return next(block for block in blocks if block.startswith(beginning))


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=README.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_table_of_decoders_is_the_catalog():
    shown = re.search(r"<!-- decoders: begin.*?-->\n(.*?)\n?<!-- decoders: end -->", README.read_text(), re.S).group(1)
    assert shown == table(), "paste the output of `python -m decoders` between the markers"


def test_the_library_example_runs():
    assert "tokens/s" in run(example("import decoders"))


def test_the_batch_example_runs():
    assert len(run(example("from decoders import")).splitlines()) >= 3


def test_the_program_example_runs(tmp_path):
    """Against `python app.py` with the embedded pair, as a reader would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environ = {**os.environ, "GRADIO_SERVER_PORT": port, "WORKBENCH_DATA": str(tmp_path)}
    app = subprocess.Popen(
        [sys.executable, "app.py"], cwd=README.parent, env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert any(port in line for line in app.stdout), "the app ended without giving its address"
        lines = run(example("from gradio_client").replace("7860", port)).splitlines()
    finally:
        app.terminate()
        app.wait(60)
    assert any(line.startswith("greedy ") for line in lines)
    assert any(line.startswith("mtad ") for line in lines)
