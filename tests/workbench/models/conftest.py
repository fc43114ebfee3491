"""Shared by the tests of models: how much memory is free."""

import pytest

from workbench.models import presets


@pytest.fixture
def free(monkeypatch):
    """Says how many bytes are free on any device."""
    return lambda number: monkeypatch.setattr(presets, "available_bytes", lambda device: number)
