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
        generate(
            ModelPair(model, None, passes=passes), [5, 6, 7], "greedy", max_new_tokens=8
        ).tokens
        for passes in ("program", "plain")
    ]
    assert loading.kernels() is None
    assert found[0] == found[1]
    (record,) = [r for r in caplog.records if "longer than they could" in r.getMessage()]
    assert said in record.getMessage()


def test_a_folder_that_cannot_be_written(fresh, monkeypatch, caplog):
    """numba raises where it finds no folder for its cache; then nothing is kept."""
    entries = pytest.importorskip("decoders.engine.kernels.program")
    asked = []

    def compiled(stamp, **options):
        asked.append(options)
        if options:
            raise RuntimeError("cannot cache function 'run': no locator available")
        names = "run", "passes", "multiply", "serve", "find", "spread", "leave"
        return [lambda *arguments, name=name: name for name in names]

    monkeypatch.setattr(entries, "compiled", compiled)
    assert loading.kernels().run() == "run"
    assert asked == [{"cache": True}, {}]
    assert not caplog.records


def test_what_was_compiled_once_is_read_from_the_cache(monkeypatch, tmp_path):
    """Chains were compiled in every process, for 5 s: each closed over another
    function."""
    numba = pytest.importorskip("numba")
    entries = pytest.importorskip("decoders.engine.kernels.program")
    monkeypatch.setattr(entries, "carry_out", numba.njit(lambda *_: None))
    monkeypatch.setattr(entries, "passes_and_draws", numba.njit(lambda *_: 0))
    monkeypatch.setattr(entries, "product", numba.njit(lambda *_: None))
    monkeypatch.setattr(entries, "help_others", numba.njit(lambda *_: None))
    monkeypatch.setattr(entries, "find", numba.njit(lambda *_: None))
    monkeypatch.setattr(entries, "spread", numba.njit(lambda *_: None))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    entries.compiled(1, cache=True)
    for function in entries.compiled(1, cache=True):
        assert function.stats.cache_hits
        assert not function.stats.cache_misses
