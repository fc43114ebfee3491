"""Arenas between two runs: which are kept, and who gets them."""

import pytest

from decoders import generate
from decoders.engine.cache import CacheRows
from decoders.engine.passes import PackedPasses
from tests.decoders.engine.test_passes import build_pair


@pytest.fixture
def pair():
    """One whose passes are the kernels'."""
    return build_pair()


@pytest.mark.parametrize("name", ["greedy", "speculative", "mtad", "beam_search"])
@pytest.mark.parametrize("prompts", [[[3, 4, 5]], [[3, 4, 5], [6], [7, 8]]])
def test_no_text_depends_on_rows_of_the_run_before(pair, name, prompts):
    """Not even if they are no numbers."""
    options = {"max_new_tokens": 12, "ignore_eos": True, "seed": 3}

    def texts():
        return [result.tokens for result in generate(pair, prompts, name, **options)]

    before = texts()
    for model in pair.packed.values():
        arenas = model.lend(0, None, CacheRows, None)
        for tensor in (*arenas.each[0].keys, *arenas.each[0].values):
            tensor.fill_(float("nan"))
        assert model.take_back(arenas)
    assert texts() == before


def test_after_a_cancel_and_a_crash_they_serve_the_next_run(pair, monkeypatch):
    options = {"max_new_tokens": 12, "ignore_eos": True}
    expected = generate(pair, [3, 4, 5], "speculative", **options).tokens
    looks = iter([False] * 2)
    generate(pair, [3, 4, 5], "mtad", cancel=lambda: next(looks, True), **options)
    assert generate(pair, [3, 4, 5], "speculative", **options).tokens == expected

    def crashes(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(PackedPasses, "pack", crashes)
    with pytest.raises(RuntimeError, match="out of memory"):
        generate(pair, [3, 4, 5], "speculative", **options)
    monkeypatch.undo()
    assert generate(pair, [3, 4, 5], "speculative", **options).tokens == expected
