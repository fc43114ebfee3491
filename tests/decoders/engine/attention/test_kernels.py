"""Every way to attend agrees with plain attention, request by request, in float64.

Without a CUDA device, Triton's kernel is compiled but runs under the interpreter, which has no
bfloat16 products; `python -m tests.speed.gpu` tries whole models on a device."""

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from decoders import ModelPair, generate
from decoders.engine.attention import interface
from decoders.engine.attention.interface import (
    attend_one_by_one,
    attend_with_triton,
)
from decoders.engine.cache import Arena, CacheRows, Reach, ReachRows
from decoders.engine.pack import Feed, Packing, pack
from decoders.engine.passes import fill_up
from decoders.tree import TokenTree
from tests.models import build
from tests.pairwise import EVERYWHERE, part

needs_triton = pytest.mark.skipif(not find_spec("triton"), reason="Triton is not for this platform")
TOLERANCE = 1e-5


def draw_pass(
    seed: int, shapes: str, requests=5, padded=False, drafts=(1, 5, 20), most=70,
    layout=(2, 16, 16), reach=None,
) -> Packing:  # fmt: skip
    """A pass in float64 of requests with up to `most` rows behind them in an arena with gaps.

    Their tokens are chains, trees or both."""
    rng, kind = random.Random(seed), partial(ReachRows, reach=reach) if reach else CacheRows
    arena, feeds = Arena([layout], torch.float64, torch.device("cpu"), kind=kind), []
    for _ in range(requests):
        tree = TokenTree([0] * rng.randrange(1, most + 1))
        cache = arena.take(most + 80 + rng.randrange(9))
        if shapes != "prompts":
            # only drafts are padded, which follow a whole prompt
            fed = tree.trunk if padded else tree.trunk[:-1]
            if fed:
                pack([Feed(tree, cache, fed, [])], arena)
            branches = rng.random() < {"chains": 0, "trees": 1, "mixed": 0.5}[shapes]
            for token in range(rng.choice(drafts)):
                tips = [tree.trunk[-1], *tree.tail]
                tree.add(rng.choice(tips) if branches else tips[-1], token)
        nodes = [n for n in (*tree.trunk, *tree.tail) if n not in cache.row]
        feeds.append(Feed(tree, cache, nodes, []))
    rng.shuffle(feeds)
    if padded:
        feeds = fill_up(feeds)
        assert len({len(feed.nodes) for feed in feeds}) == 1
    packing = pack(feeds, arena, window=reach.window if reach else 0).packing
    generator = torch.Generator().manual_seed(seed)
    for tensor in (*arena.keys, *arena.values):
        tensor.normal_(generator=generator)
    return packing


def worst_error(way, packing: Packing, dtype: torch.dtype, heads: int, softcap=0.0, sunk=False):
    """The distance of `way`, in this dtype, from plain attention in float64."""
    keys, values = ([t[0].to(dtype)] for t in (packing.keys, packing.values))
    tokens, size = len(packing.rows), keys[0].shape[-1]
    numbers = torch.Generator().manual_seed(1)
    # A model hands over its queries as a transposed view.
    q = torch.randn(tokens, heads, size, generator=numbers).to(dtype).transpose(0, 1)
    sinks = torch.randn(heads, generator=numbers).to(dtype) if sunk else None
    rest = 0, size**-0.5, softcap
    rounded = replace(packing, keys=[keys[0].double()], values=[values[0].double()])
    exact = attend_one_by_one(q.double(), rounded, *rest, None if sinks is None else sinks.double())
    ours = way(q, replace(packing, keys=keys, values=values), *rest, sinks)
    assert ours.shape == (tokens, heads, values[0].shape[-1])
    assert ours.is_contiguous()
    return (ours - exact).abs().max().item()


# What is drawn, and heads with what else they do. `make test` interprets one of them.
CASES = {
    "chains": ({"shapes": "chains"}, {"heads": 4}),
    "trees, groups of 3, sizes that are no powers of two": (
        {"shapes": "trees", "layout": (2, 20, 24)}, {"heads": 6}),
    "chunks, mixed": ({"shapes": "mixed", "reach": Reach(6, chunked=True)}, {"heads": 4}),
    "window and sinks": (
        {"shapes": "mixed", "reach": Reach(11)}, {"heads": 2, "sunk": True, "softcap": 3.0}),
    "long texts": (
        {"shapes": "mixed", "most": 1500, "requests": 2, "drafts": (1, 5)}, {"heads": 4}),
    "lone request with an empty companion": ({"shapes": "trees", "requests": 1}, {"heads": 2}),
    "prompts": ({"shapes": "prompts", "requests": 2}, {"heads": 4}),
    "single tokens": ({"shapes": "chains", "drafts": (1,)}, {"heads": 4}),
    "mixed, one key head for 8": ({"shapes": "mixed", "layout": (1, 8, 8)}, {"heads": 8}),
    "padded": ({"shapes": "mixed", "padded": True}, {"heads": 2}),
    "window, chains": ({"shapes": "chains", "reach": Reach(17)}, {"heads": 4}),
    "window, prompts": ({"shapes": "prompts", "requests": 3, "reach": Reach(9)}, {"heads": 4}),
    "window, single tokens": (
        {"shapes": "chains", "drafts": (1,), "reach": Reach(5)}, {"heads": 4}),
    "window, mixed": ({"shapes": "mixed", "reach": Reach(6)}, {"heads": 4}),
    "prompts that are split and not": ({"shapes": "prompts", "most": 90}, {"heads": 2}),
    "long texts, window and sinks": (
        {"shapes": "mixed", "most": 700, "requests": 2, "drafts": (1, 5), "reach": Reach(200)},
        {"heads": 4, "sunk": True}),
}  # fmt: skip


INTERPRETED = ["window and sinks"]


def triton_error(case: str) -> float:
    drawn, run = CASES[case]
    passes = draw_pass(0, **{"requests": 3, **drawn})
    return worst_error(attend_with_triton, passes, torch.float32, **run)


@pytest.fixture(scope="module")
def interpreter():
    """A process in which Triton interprets its kernels: this must be settled before the import."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(int).result()  # starts it
        yield pool


@needs_triton
@pytest.mark.parametrize("case", CASES if EVERYWHERE else INTERPRETED)
def test_triton_interpreted(interpreter, case):
    assert interpreter.submit(triton_error, case).result() < TOLERANCE


def of_one_token(
    text: int, reach: Reach | None, fed: int, wrong: int, more: int, beside: int = 0
) -> torch.Tensor:
    """What the last token of a text gets, by the pass that feeds it.

    Args:
        text: tokens of the text
        reach: how many of them a token sees
        fed: how many of them this pass feeds
        wrong: how many other tokens stand before each of those, of which it sees none
        more: tokens after it in the same pass
        beside: tokens of another request's text, of which this pass feeds the last
    """
    numbers, dtype = torch.Generator().manual_seed(3), torch.float16
    own = torch.randn(2, text, 1, 16, generator=numbers).to(dtype)
    asking = torch.randn(2, 16, generator=numbers).to(dtype)
    kind = partial(ReachRows, reach=reach) if reach else CacheRows
    arena = Arena([(1, 16, 16)], dtype, torch.device("cpu"), kind=kind)
    tree, cache = TokenTree([0] * (text - fed)), arena.take(text + fed * wrong + more)
    pack([Feed(tree, cache, tree.trunk[:], [])], arena)
    arena.sync([(cache, tree)])  # gives back rows that no later token sees
    path, nodes = tree.trunk[:], []
    for _ in range(fed):
        nodes += [tree.add(path[-1], i + 1) for i in range(wrong)]
        path.append(tree.add(path[-1], 0))
        nodes.append(path[-1])
    nodes += (further := [tree.add(path[-1], i) for i in range(more)])
    feeds = [Feed(tree, cache, nodes, [])]
    if beside:
        other, rows = TokenTree([0] * beside), arena.take(beside)
        pack([Feed(other, rows, other.trunk[:-1], [])], arena)
        feeds.append(Feed(other, rows, other.trunk[-1:], []))
    packing = pack(feeds, arena, window=reach.window if reach else 0).packing
    first = cache.first
    for tensor, numbers_of in zip((*arena.keys, *arena.values), own, strict=True):
        tensor.normal_(generator=torch.Generator().manual_seed(0))
        tensor[[cache.base + cache.row[node] for node in path[first:]]] = numbers_of[first:]
    q = torch.randn(2, len(packing.rows), 16).to(dtype)
    q[:, last := len(nodes) - len(further) - 1] = asking
    return attend_with_triton(q, packing, 0, 0.25)[last]


@needs_triton
@pytest.mark.parametrize(
    ("text", "reach", "passes"),
    part(
        [
            (1022, None, 7 if EVERYWHERE else 2),
            (70, None, 7),
            (70, Reach(30, chunked=True), 3),
            (70, Reach(30), 3),
            (2100, Reach(1030), 6 if EVERYWHERE else 2),
        ],
        3,
    ),
    ids=str,
)
def test_a_token_gets_the_same_bits_in_a_chain_a_tree_and_any_pass(
    interpreter, text, reach, passes
):
    """They were others in a tree, and where the rows of a pass went beyond a multiple of 1,024.

    So in bfloat16, in which near-ties are common, a draft could change the tokens. In a window they
    were others, too, once rows before it had been given back."""
    run = partial(interpreter.submit, of_one_token, text, reach)
    alone = run(1, 0, 0)
    others = [run(*each) for each in OTHER_PASSES[:passes]]
    assert all(torch.equal(other.result(), alone.result()) for other in others)


# How many of the text's tokens are fed, the wrong ones before each, those after the last, and the
# text of another request: how many programs share a request's rows must depend on it alone.
OTHER_PASSES = [
    (5, 0, 0), (2, 3, 1), (1, 0, 4), (33, 0, 31), (5, 2, 0), (20, 1, 24), (5, 0, 0, 700),
]  # fmt: skip


# KB of shared memory that one block of threads may have, by capability
SHARED = {75: 64, 80: 163, 89: 99, 90: 227}
POINTERS = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}


def compiled(function, capability, types, constants, aligned, **options):
    """A kernel as machine code, which needs no device; it fits into the card's shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget

    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    signature = {name: types[name] for name in function.arg_names if name not in constants}
    signature |= dict.fromkeys(constants, "constexpr")
    signature = {name: signature[name] for name in function.arg_names}
    attributes = {
        (function.arg_names.index(name),): [["tt.divisibility", 16]]
        for name in aligned
        if name in signature
    }
    source = triton.compiler.ASTSource(function, signature, constants, attributes)
    target = GPUTarget("cuda", capability, 32)
    built = triton.compile(source, target=target, options=options)
    assert built.asm["cubin"]
    assert built.metadata.shared <= SHARED[capability] * 1024
    return built


# sizes of keys and values, query heads per key head
HEADS = [(64, 64, 4), (128, 128, 8), (256, 256, 1), (40, 24, 3)]


# Those that failed once (the first and the fifth), and each number type and size somewhere.
SMALL, USUAL, LARGE, ODD = HEADS
COMPILED = [
    (75, torch.float16, ODD, "short"), (80, torch.bfloat16, USUAL, "short"),
    (75, torch.float32, USUAL, "tree"), (90, torch.bfloat16, SMALL, "tree"),
    (75, torch.float16, LARGE, "long"), (89, torch.bfloat16, USUAL, "long"),
    (90, torch.float32, LARGE, "long"),
]  # fmt: skip


@needs_triton
@pytest.mark.parametrize(("capability", "dtype", "heads", "form"), part(COMPILED, 4), ids=str)
def test_triton_compiles_for_cuda(monkeypatch, tmp_path, capability, dtype, heads, form):
    """Three times the compiler refused what the interpreter accepts: a float as a condition, for
    capability 7.5 a boolean that leaves an `if`, and a name that stands for pointers of two shapes,
    where keys and values are of different sizes. For 7.5, heads of 256 also took 96 KB of 64."""
    from decoders.engine.attention.kernels import STAGES, ancestors, join, kernel, tiling

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    key_size, value_size, groups = heads
    odd = heads == ODD
    constants = {
        "GROUPS": groups, "KEY_HEADS": 2, "HEADS": 2 * groups, "KEY_SIZE": key_size,
        "VALUE_SIZE": value_size, "SINKS": odd, "SOFTCAP": 3.0 if odd else 0.0, "q_size": 1,
        "TREE": form == "tree", "SPLIT": form != "long",
        **tiling(form != "long", form == "tree", groups, key_size, value_size, dtype),
    }  # fmt: skip
    pointers = dict.fromkeys(("q", "keys", "values", "sinks", "out"), POINTERS[dtype])
    pointers |= dict.fromkeys(("table", "order", "counts"), "*i32")
    pointers |= {"parts": "*fp32", "masks": "*u8"}
    for function in (kernel, join, ancestors):
        types = dict.fromkeys(function.arg_names, "i32") | pointers | {"scale": "fp32"}
        # As launched: torch's memory is aligned, and the strides of queries are multiples of 16
        # where heads are.
        strides = ["q_head", "q_token"] if key_size % 16 == 0 and function is kernel else []
        compiled(function, capability, types, constants, [*pointers, *strides], num_stages=STAGES)


def test_a_layout_that_sdpa_may_answer_with(monkeypatch):
    """On CUDA its memory-efficient kernel returns heads side by side in memory.

    With grouped heads, a view of the result raised an error as soon as a model was loaded."""
    plain = scaled_dot_product_attention

    def transposed(*args, **options):
        return plain(*args, **options).transpose(1, 2).contiguous().transpose(1, 2)

    p = draw_pass(0, "mixed", layout=(1, 8, 8))
    q = torch.randn(8, len(p.rows), 8, dtype=torch.float64)
    expected = attend_one_by_one(q, p, 0, 0.3)
    monkeypatch.setattr(interface, "scaled_dot_product_attention", transposed)
    torch.testing.assert_close(attend_one_by_one(q, p, 0, 0.3), expected)


@needs_triton
def test_a_way_that_fails_at_its_first_launch(monkeypatch, caplog):
    """Triton is chosen if there is a compiler, but its launchers also need Python.h.

    Its error came through raw. Here it finds no driver. Now there is one warning, and the same
    tokens by the next way."""
    prompts = [[1, 2, 3], [4], list(range(5, 30))]
    options = {"max_new_tokens": 12, "ignore_eos": True}
    model = build(num_key_value_heads=2)
    pair = partial(ModelPair, model, model, passes="plain")
    expected = [r.tokens for r in generate(pair(), prompts, "specinfer", **options)]
    caplog.clear()
    monkeypatch.setattr(interface, "FAILED", [])
    monkeypatch.setattr(interface, "takes_kernels", lambda device, dtype: True)
    monkeypatch.setattr(interface, "TRITON", True)
    found = [r.tokens for r in generate(pair(), prompts, "specinfer", **options)]
    (warning,) = [r.getMessage() for r in caplog.records if r.name == "decoders"]
    assert warning.startswith("Triton does not run here (")
    assert found == expected
