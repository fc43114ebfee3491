"""Runs decoders side by side, keeps the results, and shows them on a page or in a terminal."""

from pathlib import Path

from decoders.process import assets as assets_of


def assets() -> Path:
    """The folder of the files that these need: prompts, shipped measurements.

    It is `assets` in a checkout, `workbench/_assets` in an installed package.
    """
    return assets_of(__file__)
