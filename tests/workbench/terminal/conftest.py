"""The program on the tiny pair, its past runs in a folder of the test."""

import pytest

from workbench import __main__ as program
from workbench.models import keeper
from workbench.runs.store import RunStore


@pytest.fixture
def store(monkeypatch, tmp_path) -> RunStore:
    monkeypatch.setenv("WORKBENCH_DATA", str(tmp_path / "data"))
    return RunStore()


@pytest.fixture
def loads(pair, monkeypatch) -> list:
    """The pairs that the program loaded."""
    found = []
    monkeypatch.setattr(keeper, "load", lambda choice, *_: found.append(choice) or pair)
    return found


@pytest.fixture
def call(store, loads, monkeypatch, capsys):
    """Runs the program; returns its exit status, its output and its errors."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> tuple[int, str, str]:
        try:
            status = program.main(list(words))
        except SystemExit as end:
            status = end.code
        return status, *capsys.readouterr()

    return call
