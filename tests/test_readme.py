"""What the README shows must be so."""

import re
import subprocess
import sys
from pathlib import Path

from decoders.__main__ import table

README = Path(__file__).parents[1] / "README.md"


def test_the_table_of_decoders_is_the_catalog():
    shown = re.search(r"<!-- decoders: begin.*?-->\n(.*?)\n?<!-- decoders: end -->", README.read_text(), re.S).group(1)
    assert shown == table(), "paste the output of `python -m decoders` between the markers"


def test_the_library_example_runs():
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.S).group(1)
    done = subprocess.run([sys.executable, "-c", code], cwd=README.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "tokens/s" in done.stdout
