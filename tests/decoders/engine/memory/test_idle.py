"""Arenas between two runs: which are kept, and who gets them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from decoders import ModelPair, generate
from decoders.engine.memory.idle import Idle
from decoders.engine.memory.rows import CacheRows
from decoders.engine.models import packed
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes.packed import PackedPasses
from decoders.engine.passes.padded import PaddedRows
from decoders.tree import TokenTree
from tests.models import build

KIND = CacheRows, torch.float64, torch.device("cpu")


@pytest.fixture
def model():
    return PackedModel(build().double(), "target")


def a_run(model, rows=8, most=None):
    """The arenas of a run of one request, which is over."""
    engine, tree = PackedPasses(model, most_rows=most), TokenTree([3, 4])
    assert engine.admit(tree, rows)
    arenas = engine.arenas
    engine.release(tree)
    return arenas


def test_the_next_run_gets_them(model):
    first = a_run(model)
    assert a_run(model) is first
    assert first.each[0].rows == 8
    assert a_run(model, rows=20) is first, "they grow"
    assert first.each[0].rows >= 20


def test_runs_at_the_same_time_have_separate_ones(model):
    one, other = (PackedPasses(model) for _ in range(2))
    trees = TokenTree([3]), TokenTree([4])
    for engine, tree in zip((one, other), trees, strict=True):
        engine.admit(tree, 8)
    assert one.arenas is not other.arenas


def test_large_ones_and_those_of_a_limit_are_not_kept(model, monkeypatch):
    limited = a_run(model, most=8)
    assert a_run(model) is not limited
    monkeypatch.setattr(packed, "IDLE_BYTES", 100 * model.row_bytes)
    model = PackedModel(build().double(), "target")
    large = a_run(model, rows=101)
    small = a_run(model, rows=100)
    assert small is not large
    assert a_run(model, rows=1) is small


def test_all_together_stay_within_the_limit(model):
    idle = Idle(20 * model.row_bytes)
    three = [model.arenas() for _ in range(3)]
    for arenas in three:
        arenas.take(10, 1)
    assert [idle.keep(arenas) for arenas in three] == [True, True, False]
    assert idle.take(*KIND) in three[:2]
    assert idle.keep(three[2])


def test_only_alike_ones_are_taken(model):
    idle = Idle(None)
    arenas = model.arenas()
    idle.keep(arenas)
    assert idle.take(PaddedRows, *KIND[1:]) is None
    assert idle.take(CacheRows, torch.float32, KIND[2]) is None
    assert idle.take(CacheRows, KIND[1], torch.device("meta")) is None
    assert idle.take(*KIND) is arenas
    assert idle.take(*KIND) is None


def test_a_model_that_changes_its_dtype_gets_new_ones():
    """Rows of the old dtype would hold what the model never computed."""
    model = build()
    prepared = PackedModel(model, "target", passes="plain")
    first = a_run(prepared)
    model.float()
    assert a_run(prepared) is not first


def test_no_text_depends_on_rows_of_the_run_before():
    """Not even if they are no numbers."""
    pair = ModelPair(build(), build(seed=1))
    options = {"max_new_tokens": 12, "ignore_eos": True, "seed": 3}
    texts = [generate(pair, [3, 4, 5], "speculative", **options).tokens]
    for role in ("target", "draft"):
        model = pair.packed[role]
        arenas = model.lend(0, None, CacheRows, None)
        assert arenas.each[0].rows, "those of the text"
        for tensor in (*arenas.each[0].keys, *arenas.each[0].values):
            tensor.fill_(float("nan"))
        model.take_back(arenas)
    texts.append(generate(pair, [3, 4, 5], "speculative", **options).tokens)
    assert texts[0] == texts[1]


def test_threads():
    """Each gets arenas of its own, and the texts are those of one thread."""
    pair = ModelPair(build(), build(seed=1))

    def text(seed):
        options = {"max_new_tokens": 12, "ignore_eos": True, "seed": seed}
        return generate(pair, [3, 4, 5], "speculative", **options).tokens

    alone = [text(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(text, range(8))) == alone
