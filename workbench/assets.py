"""The files that the page and the terminal need at run time: web, prompts, measurements that are shipped."""

from pathlib import Path

from decoders.assets import assets as assets_of


def assets() -> Path:
    """Their folder: `assets` in a repository checkout, `workbench/_assets` where this is installed."""
    return assets_of(__file__)
