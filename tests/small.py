"""Runs a program with a small pair in place of the embedded one: `python -m tests.small app.py`."""

import runpy
import sys
import tempfile
from pathlib import Path

from decoders.engine.loading import load
from tests.models import save_small_pair

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        load.EMBEDDED = save_small_pair(Path(folder))
        runpy.run_path(sys.argv[0], run_name="__main__")
