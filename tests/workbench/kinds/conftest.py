"""Kinds are tested on the page, in the terminal and alone, with the fixtures of those rooms."""

from tests.workbench.experiments.conftest import crew, device, journal, prepared
from tests.workbench.page.conftest import host, house
from tests.workbench.terminal.conftest import call, loads, store

__all__ = [
    "call", "crew", "device", "host", "house", "journal", "loads", "prepared", "store",
]  # fmt: skip
