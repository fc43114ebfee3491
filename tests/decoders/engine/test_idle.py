"""Arenas between two runs: which are kept, and who gets them."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from decoders import generate
from decoders.engine import cache as memory
from decoders.engine.cache import CacheRows
from decoders.engine.models import packed
from decoders.engine.models.packed import PackedModel
from decoders.engine.pack import Idle
from decoders.engine.passes import PackedPasses, PaddedRows
from decoders.tree import TokenTree
from tests.decoders.engine.test_passes import build_pair
from tests.models import build


@pytest.fixture
def model():
    return PackedModel(build().float(), "target")


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
    model = PackedModel(build().float(), "target")
    large = a_run(model, rows=101)
    small = a_run(model, rows=100)
    assert small is not large
    assert a_run(model, rows=1) is small


def test_all_together_stay_within_the_limit(model):
    """The oldest ones make room."""
    idle = Idle(20 * model.row_bytes)
    three = [model.arenas() for _ in range(3)]
    for arenas in three:
        arenas.take(10, 1)
        assert idle.keep(arenas)
    assert idle.arenas == (*three[1:],)
    large = model.arenas()
    large.take(21, 1)
    assert not idle.keep(large)
    assert idle.arenas == (*three[1:],)


def test_they_grow_at_once_to_what_the_next_run_expects(model):
    """A batch after a single request grew in many steps, each of which copied."""
    a_run(model, rows=8)
    engine, trees = PackedPasses(model, rows=64), [TokenTree([3, i]) for i in range(8)]
    sizes = []
    for tree in trees:
        engine.admit(tree, 8)
        sizes.append(engine.arena.rows)
    assert sizes == [8] + 7 * [64]


def test_arenas_whose_growth_failed_are_whole(model, monkeypatch):
    """Keys had grown and values had not, and rows were moved in memory that no pass read."""
    arenas = model.arenas()
    (cache,) = arenas.take(4, 1)
    (arena,) = arenas.each
    made, empty = [], memory.empty

    def full(*args):
        if made:
            raise RuntimeError("no memory")
        made.append(empty(*args))
        return made[-1]

    monkeypatch.setattr(memory, "empty", full)
    with pytest.raises(RuntimeError, match="no memory"):
        arenas.take(40, 1)
    monkeypatch.undo()
    assert arena.rows == 4
    for number, tensors in enumerate((arena.keys, arena.values)):
        for tensor in tensors:
            tensor[0] = 1 + number
    arena.move([0], [1])
    assert all((keys[1] == 1).all() for keys in arena.keys)
    assert all((values[1] == 2).all() for values in arena.values)
    arenas.give_back([cache])
    assert arenas.take(40, 1)
    assert {len(tensor) for tensor in (*arena.keys, *arena.values)} == {40}


def test_only_alike_ones_are_taken(model):
    idle = Idle(None)
    arenas = model.arenas()
    idle.keep(arenas)
    assert idle.take(PaddedRows) is None
    assert idle.take(CacheRows) is arenas
    assert idle.take(CacheRows) is None


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


def test_threads(pair):
    """Each gets arenas of its own, and the texts are those of one thread."""

    def text(seed):
        options = {"max_new_tokens": 12, "ignore_eos": True, "seed": seed}
        return generate(pair, [3, 4, 5], "speculative", **options).tokens

    alone = [text(seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(text, range(8))) == alone
