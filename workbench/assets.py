"""The files that the page and the terminal need at run time: prompts, shipped measurements."""

from pathlib import Path

from decoders.process import assets as assets_of


def assets() -> Path:
    """Their folder: `assets` in a checkout, `workbench/_assets` in an installed package."""
    return assets_of(__file__)
