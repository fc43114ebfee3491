"""The project's own decoders, for these scripts: they lie two folders up and are not installed."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

import decoders

__all__ = ["decoders"]
