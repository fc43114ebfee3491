"""Kinds are tested on the page, in the terminal and alone, with the fixtures of those rooms."""

from tests.workbench.page.conftest import host, house
from tests.workbench.terminal.conftest import call, loads, store

__all__ = ["call", "host", "house", "loads", "store"]
