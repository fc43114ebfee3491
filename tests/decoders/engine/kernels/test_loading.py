"""Without kernels there is one warning, and the same tokens."""

import sys

import pytest

from decoders import ModelPair, generate
from decoders.engine.kernels import loading
from tests.models import build


@pytest.fixture
def fresh():
    """Kernels are looked for anew, here and afterwards."""
    loading.kernels.cache_clear()
    yield
    loading.kernels.cache_clear()


def missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    return "numba is not installed"


def old_processor(monkeypatch):
    binding = pytest.importorskip("llvmlite.binding")
    monkeypatch.setattr(binding, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: {"avx2": True})
    return "for AVX2 and for Arm"


@pytest.mark.parametrize("reason", [missing, old_processor])
def test_one_sentence_and_the_same_tokens(reason, fresh, monkeypatch, caplog):
    said = reason(monkeypatch)
    model = build()
    found = [
        generate(ModelPair(model, None, passes=passes), [5, 6], "greedy", max_new_tokens=8).tokens
        for passes in ("program", "plain")
    ]
    assert loading.kernels() is None
    assert found[0] == found[1]
    (record,) = [r for r in caplog.records if "longer than they could" in r.getMessage()]
    assert said in record.getMessage()
