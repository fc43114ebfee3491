"""Kinds are tested on the page, in the terminal and alone, with the fixtures of those rooms."""

from tests.workbench.experiments.conftest import crew, device, journal, prepared
from tests.workbench.measuring.conftest import every_round, rows_out
from tests.workbench.page.conftest import host, house
from tests.workbench.terminal.conftest import call, loads, store

__all__ = [
    "call", "crew", "device", "every_round", "host", "house", "journal", "loads", "prepared",
    "rows_out", "store",
]  # fmt: skip
