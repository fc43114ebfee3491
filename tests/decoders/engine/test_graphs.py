"""Passes over fixed buffers, with a stand-in for CUDA graphs.

It notes operators and replays them into the same memory, with the Python numbers of the recording,
and refuses to read a value back. Effects that only a device has are not tested here."""

import itertools
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from decoders import ModelPair, generate
from decoders.distribution import Warping
from decoders.engine import graphs
from decoders.engine.attention import interface
from decoders.engine.graphs import Graphs
from decoders.engine.lowering.lower import CannotLower
from decoders.engine.models import packed
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.engine.recorder import refuse_reading
from decoders.reading import Readings, held
from decoders.tree import TokenTree
from tests import zoo
from tests.models import build
from tests.pairwise import EVERYWHERE, part

PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]
OPTIONS = {"max_new_tokens": 10, "ignore_eos": True}


class Noted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.steps = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        refuse_reading(function, args)
        out = function(*args, **kwargs)
        given = {t.untyped_storage().data_ptr() for t in tensors((args, kwargs))}
        fresh = [t.untyped_storage().data_ptr() not in given for t in tensors(out)]
        self.steps.append((function, args, kwargs, out, fresh))
        return out


def tensors(thing):
    return [t for t in tree_flatten(thing)[0] if isinstance(t, torch.Tensor)]


def stand_in(run):
    """Stands in for a Capture."""
    run()
    with Noted() as noted:
        answer = run()

    def replay():
        for function, args, kwargs, out, fresh in noted.steps:
            if any(fresh) or function._schema.is_mutable:
                made = function(*args, **kwargs)
                for old, new, own in zip(tensors(out), tensors(made), fresh, strict=True):
                    if own:
                        old.copy_(new)

    return replay, answer


def attend_by_table(q, packing, layer, scale, softcap, sinks):
    """The kernel, as operators: it sees table and masks, and not the segments."""
    keys, values, window = packing.keys[layer], packing.values[layer], packing.window
    table, masks = packing.table, packing.masks
    starts, bases, totals, mask_starts, tolds = table.long()
    token, row = torch.arange(q.shape[1]), torch.arange(len(keys))
    # after the last request: nobody's
    request = torch.searchsorted(starts[1:].contiguous(), token, right=True)
    following = torch.cat([starts[1:], starts[-1:]])
    place = (token - starts[request])[:, None]
    total, told, mask_start = (x[request][:, None] for x in (totals, tolds, mask_starts))
    row = row[None] - bases[request][:, None]
    last = total - (following[request] - starts[request])[:, None] + place
    among = (row <= last) & (row > last - (window or len(keys)))
    index = (mask_start + place * (total - told) + row - told).clamp(0, len(masks) - 1)
    among = torch.where(mask_start >= 0, (row < told) | masks[index], among)
    among = among & (row >= 0) & (row < total)
    groups = q.shape[0] // keys.shape[1]
    k, v = (t.repeat_interleave(groups, 1) for t in (keys, values))
    scores = torch.einsum("htd,rhd->htr", q, k) * scale
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    scores = scores.masked_fill(~among, float("-inf"))
    return torch.einsum("htr,rhd->thd", scores.softmax(-1).nan_to_num(7.0), v.nan_to_num(7.0))


def without_triton(lowering):
    raise CannotLower("the stand-in has no kernels of its own")


def with_kernels(patch):
    patch.setattr(packed, "launches", without_triton)
    patch.setattr(interface, "takes_kernels", lambda device, dtype: True)
    patch.setattr(interface, "TRITON", True)
    patch.setattr(interface, "attend_with_triton", attend_by_table)
    patch.setattr(Graphs.__init__, "__defaults__", (stand_in,))


@pytest.fixture
def kernels(monkeypatch):
    """A CPU that looks as if it had the kernel."""
    with_kernels(monkeypatch)


@pytest.fixture
def replayed(monkeypatch):
    """An entry for each pass of a graph."""
    passes, start = [], graphs.Graph._start
    monkeypatch.setattr(graphs.Graph, "_start", lambda *a: passes.append(1) or start(*a))
    return passes


@pytest.fixture(scope="module")
def pairs():
    """Plain and with graphs, as they are by default where attention has a kernel.

    For all decoders: each records the shapes that those before had not."""
    with pytest.MonkeyPatch.context() as patch:
        with_kernels(patch)
        made = models()
        return [ModelPair(*made, passes=passes) for passes in ("plain", "program")]


def tokens(pair, decoder="greedy", prompts=PROMPTS, **options):
    return [r.tokens for r in generate(pair, prompts, decoder, **OPTIONS | options)]


def warnings(caplog):
    said = [r.getMessage() for r in caplog.records if r.name == "decoders"]
    return [message for message in said if "module by module" in message]


def models():
    return build(num_key_value_heads=2), build(seed=1, num_hidden_layers=1)


@pytest.mark.parametrize(
    "decoder",
    part(["greedy", "multinomial", "beam_search", "speculative", "mtad", "dsbd", "specinfer"]),
)
def test_the_same_tokens(kernels, pairs, decoder, caplog):
    """In a batch, alone, and in the next run, which takes over the arena and the graphs."""
    plain, recorded = pairs
    batch, alone = (tokens(plain, decoder, some, seed=4) for some in (PROMPTS, PROMPTS[:1]))
    for prompts, expected in ((PROMPTS, batch), (PROMPTS[:1], alone), (PROMPTS, batch)):
        assert tokens(recorded, decoder, prompts, seed=4) == expected
    assert not warnings(caplog)
    assert not recorded.plain
    assert "CUDA graphs" in recorded.packed["target"].engine_name


SAMPLINGS = {}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05}
SOME = "multinomial", "speculative", "mtad", "dsbd"


@pytest.mark.parametrize(
    ("decoder", "sampling"),
    [*itertools.product(SOME, SAMPLINGS)]
    if EVERYWHERE
    else part(zip(SOME, SAMPLINGS, strict=True)),
)
def test_the_same_tokens_whether_logits_come_back_or_stay(
    kernels, pairs, monkeypatch, decoder, sampling
):
    """Those of large batches over a large vocabulary stay on the device."""
    plain, recorded = pairs
    expected = tokens(plain, decoder, seed=4, **sampling)
    assert tokens(recorded, decoder, seed=4, **sampling) == expected
    monkeypatch.setattr(graphs, "NEEDED", 0)
    monkeypatch.setattr(graphs, "USEFUL", 0)
    assert tokens(recorded, decoder, seed=4, **sampling) == expected


CUTS = [
    {}, {"temperature": 0.3}, {"temperature": 0.0}, {"top_k": 5}, {"top_k": 5, "top_p": 0.7},
    {"top_p": 0.9}, {"top_p": 1e-9}, {"min_p": 0.1},
    {"temperature": 2.0, "top_p": 0.5, "min_p": 0.02},
]  # fmt: skip


@pytest.mark.parametrize("equals", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
def test_a_graph_draws_as_a_distribution_does(cuts, equals):
    """With top-p or min-p alone no graph drew, so that each token of a draft was a launch."""
    rows = 3 * torch.randn(200, 300, dtype=torch.float64, generator=torch.manual_seed(1))
    rows = rows.round() if equals else rows
    uniforms = torch.rand(len(rows), dtype=torch.float64, generator=torch.manual_seed(2))
    warping = Warping(**cuts)
    extras = graphs.Extras(32, 1, True, sorts=warping.cuts and not warping.top_k)
    cut = warping.temperature, warping.top_k, warping.top_p, warping.min_p
    ours = graphs.draw(rows, rows.new_tensor([cut] * len(rows)), uniforms, extras)
    readings = Readings(rows, held(warping))
    for token, reading, u in zip(ours.tolist(), readings, uniforms.tolist(), strict=True):
        assert [token] == reading.warp(warping).draw([u])


def test_a_limit_on_memory_keeps_graphs(kernels, replayed):
    """For want of one row more there were none, and none were left for the next run."""
    pair, plain = (ModelPair(build(), None, passes=passes) for passes in ("program", "plain"))
    size = pair.packed["target"].row_bytes
    for rows in (60, 60, 50):  # the last prompt needs 50
        options = {"max_cache_bytes": rows * size}
        assert tokens(pair, **options) == tokens(plain, **options)
        assert replayed
        replayed.clear()
    graphs = pair.packed["target"].forward
    assert len({id(graph.keys) for graph in graphs._graphs.values()}) == 1


@pytest.mark.parametrize(
    ("requests", "each"), [(16, 5), (1, 80), (1, 129), (32, 8), (1, 256), (1, 257)]
)
def test_passes_of_up_to_256_tokens_are_replayed(kernels, replayed, requests, each):
    """Those of more than 64 were not, which five tokens of 16 requests are: 5 times as slow."""
    model = build(max_position_embeddings=512)
    ways = (PackedModel(model, "target", passes=passes) for passes in ("program", "plain"))
    engine, plain = map(PackedPasses, ways)
    trees = [TokenTree([(7 * i + k) % 60 for i in range(each)]) for k in range(requests)]
    wants = [(tree, tree.trunk[-1:]) for tree in trees]
    for passes in (engine, plain):
        for tree in trees:
            passes.admit(tree, each + 1)
    ours, expected = (passes.run(wants)[0].rows for passes in (engine, plain))
    torch.testing.assert_close(ours, expected)
    assert len(replayed) == (requests * each <= 256)


def test_graphs_have_one_pool_of_memory(monkeypatch):
    """Each had its own, as large as a pass."""
    pools = []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: object())
    monkeypatch.setattr(graphs, "cuda_graph", lambda run, pool: pools.append(pool))
    one, other = (Graphs(None, list, None) for _ in range(2))
    one.record(int), one.record(int), other.record(int)
    assert pools[0] is pools[1] is not pools[2]


def test_passes_share_few_graphs(kernels, monkeypatch):
    """One graph for each shape, however long the texts and large the batches.

    A second run makes none."""
    made = []
    record = lambda run: made.append(1) or stand_in(run)  # noqa: E731
    monkeypatch.setattr(Graphs.__init__, "__defaults__", (record,))
    pair = ModelPair(*models(), passes="program")
    tokens(pair, "specinfer", PROMPTS * 2, max_new_tokens=20)
    first = len(made)
    tokens(pair, "specinfer", PROMPTS * 2, max_new_tokens=20)
    assert 0 < first == len(made) < 2 * len(graphs.TOKENS) * len(graphs.REQUESTS) // 3


def engine_of(model, prompts):
    engine, trees = PackedPasses(model), [TokenTree(prompt) for prompt in prompts]
    for tree in trees:
        engine.admit(tree, 40)
    engine.run([(tree, tree.trunk[-1:]) for tree in trees])
    return engine, trees


def test_an_arena_that_grows_gives_back_the_memory_it_had(kernels):
    """Graphs kept it until the run ended."""
    engine, _ = engine_of(PackedModel(build(), "target", passes="program"), PROMPTS[:1])
    before, other = weakref.ref(engine.arena.keys[0]), TokenTree(PROMPTS[3])
    engine.admit(other, 500)
    engine.run([(other, other.trunk[-1:])])
    assert before() is None


@pytest.mark.parametrize("name", ["mistral", "gemma3_text"])
def test_windows(kernels, name):
    """In all layers the graph has the window's size; in some, passes run as they are, and say so.

    They were called replayed from graphs."""
    model, _ = zoo.build_pair(name, sliding_window=6)
    model.double()
    pairs = [ModelPair(model, None, passes=passes) for passes in ("program", "plain")]
    ours, plain = (tokens(pair, prompts=PROMPTS[:3], max_new_tokens=30) for pair in pairs)
    assert ours == plain
    graphs = "CUDA graphs" in pairs[0].packed["target"].engine_name
    assert graphs == (name == "mistral")


def fails(run):
    raise RuntimeError("operation not permitted when stream is capturing\nand more")


def forgets(run):
    """A graph in which a number was frozen: it answers with the recorded one."""
    _, answer = stand_in(run)
    return lambda: None, answer


def reads(run):
    def reading():
        (logits,) = run()
        return (logits + logits.max().item(),)

    return stand_in(reading)


@pytest.mark.parametrize(
    ("record", "why"),
    [(fails, "not permitted"), (forgets, "other numbers"), (reads, "reads values back")],
)
def test_what_cannot_be_recorded_runs_as_it_is(kernels, monkeypatch, caplog, record, why):
    """With one warning."""
    model = build()
    expected = tokens(ModelPair(model, None, passes="plain"))
    monkeypatch.setattr(Graphs.__init__, "__defaults__", (record,))
    assert tokens(ModelPair(model, None, passes="program")) == expected
    (message,) = warnings(caplog)
    assert why in message
