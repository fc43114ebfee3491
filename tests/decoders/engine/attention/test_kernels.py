"""Every way to attend agrees with plain attention, request by request, in float64.

Without a CUDA device, Triton's kernel is compiled but runs under the interpreter, which has no
bfloat16 products, and the documented behaviour of `torch.nn.attention.varlen` stands in for
FlashAttention. Tests that need the device are skipped."""

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from decoders import ModelPair, generate
from decoders.engine.attention import interface
from decoders.engine.attention.interface import (
    attend_chains,
    attend_layer,
    attend_one_by_one,
    attend_with_triton,
    choose_way,
)
from decoders.engine.cache import Arena, CacheRows, Reach, ReachRows
from decoders.engine.pack import Feed, Packing, pack
from decoders.engine.passes import fill_up
from decoders.tree import TokenTree
from tests.models import build
from tests.pairwise import EVERYWHERE

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not made for this platform"
)
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def draw_pass(
    seed: int, shapes: str, requests=5, padded=False, drafts=(1, 5, 20), **arena
) -> Packing:
    """A pass in float64 of requests with 0 to 69 rows behind them in an arena with gaps.

    Their tokens are chains, trees or both."""
    return draw_feeds(seed, shapes, requests, padded, drafts, **arena)[0]


def draw_feeds(
    seed: int,
    shapes: str,
    requests=5,
    padded=False,
    drafts=(1, 5, 20),
    most=70,
    layout=(2, 16, 16),
    reach=None,
) -> tuple[Packing, list[Feed]]:
    """The same, with up to `most` rows behind a request, and the parts that it was packed from."""
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
        feeds.append(
            Feed(tree, cache, [n for n in (*tree.trunk, *tree.tail) if n not in cache.row], [])
        )
    rng.shuffle(feeds)
    if padded:
        feeds = fill_up(feeds)
        assert len({len(feed.nodes) for feed in feeds}) == 1
    packing = pack(feeds, arena, window=reach.window if reach else 0).packing
    generator = torch.Generator().manual_seed(seed)
    for tensor in (*arena.keys, *arena.values):
        tensor.normal_(generator=generator)
    return packing, feeds


def worst_error(
    way,
    packing: Packing,
    dtype: torch.dtype,
    heads: int,
    softcap: float = 0.0,
    sunk: bool = False,
    device: str = "cpu",
):
    """The distance of `way`, in this dtype on this device, from plain attention in float64."""
    keys, values = ([t[0].to(dtype)] for t in (packing.keys, packing.values))
    tokens, size = len(packing.rows), keys[0].shape[-1]
    # A model hands over its queries as a transposed view.
    q = (
        torch.randn(tokens, heads, size, generator=torch.Generator().manual_seed(1))
        .to(dtype)
        .transpose(0, 1)
    )
    sinks = (
        torch.randn(heads, generator=torch.Generator().manual_seed(2)).to(dtype) if sunk else None
    )
    rest = 0, size**-0.5, softcap
    rounded = replace(packing, keys=[keys[0].double()], values=[values[0].double()])
    exact = attend_one_by_one(
        q.double(), rounded, *rest, sinks if sinks is None else sinks.double()
    )
    there = replace(
        packing,
        keys=[keys[0].to(device)],
        values=[values[0].to(device)],
        table=packing.table.to(device),
        masks=packing.masks.to(device),
    )
    ours = way(q.to(device), there, *rest, sinks if sinks is None else sinks.to(device))
    assert ours.shape == (tokens, heads, values[0].shape[-1])
    assert ours.is_contiguous()
    return (ours.cpu() - exact).abs().max().item()


CASES = {
    "chains": ({"shapes": "chains"}, {"heads": 4}),
    "prompts": ({"shapes": "prompts", "requests": 2}, {"heads": 4}),
    "trees, groups of 3, sizes that are no powers of two": (
        {"shapes": "trees", "layout": (2, 20, 24)},
        {"heads": 6},
    ),
    "single tokens": ({"shapes": "chains", "drafts": (1,)}, {"heads": 4}),
    "mixed, one key head for 8": (
        {"shapes": "mixed", "layout": (1, 8, 8), "requests": 3},
        {"heads": 8},
    ),
    "mixed, soft-capped": ({"shapes": "mixed"}, {"heads": 2, "softcap": 3.0}),
    "padded": ({"shapes": "mixed", "padded": True}, {"heads": 2}),
    "window, chains": ({"shapes": "chains", "reach": Reach(17)}, {"heads": 4}),
    "window, prompts": ({"shapes": "prompts", "requests": 3, "reach": Reach(9)}, {"heads": 4}),
    "window, single tokens": (
        {"shapes": "chains", "drafts": (1,), "reach": Reach(5)},
        {"heads": 4},
    ),
    "window, mixed": ({"shapes": "mixed", "reach": Reach(6)}, {"heads": 4}),
    "chunks, mixed": ({"shapes": "mixed", "reach": Reach(6, chunked=True)}, {"heads": 4}),
    "sinks, mixed": ({"shapes": "mixed", "layout": (2, 16, 24)}, {"heads": 6, "sunk": True}),
    "window and sinks": (
        {"shapes": "mixed", "reach": Reach(11)},
        {"heads": 2, "sunk": True, "softcap": 3.0},
    ),
    "lone request with an empty companion": ({"shapes": "trees", "requests": 1}, {"heads": 2}),
    "long texts": (
        {"shapes": "mixed", "most": 1500, "requests": 2, "drafts": (1, 5)},
        {"heads": 4},
    ),
    "prompts that are split and not": ({"shapes": "prompts", "most": 90}, {"heads": 2}),
    "long texts, window and sinks": (
        {"shapes": "mixed", "most": 700, "requests": 2, "drafts": (1, 5), "reach": Reach(200)},
        {"heads": 4, "sunk": True},
    ),
}


def triton_error(case: str, dtype: torch.dtype, device: str = "cpu") -> float:
    drawn, run = CASES[case]
    return worst_error(
        attend_with_triton, draw_pass(0, **{"requests": 3, **drawn}), dtype, device=device, **run
    )


@pytest.fixture(scope="module")
def interpreter():
    """A process in which Triton interprets its kernels: this must be settled before the import."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(int).result()  # starts it
        yield pool


# Of these cases every feature is one's; the others are for `make test-all`.
QUICK = (
    "chains", "trees, groups of 3, sizes that are no powers of two", "chunks, mixed",
    "window and sinks", "lone request with an empty companion", "long texts",
)  # fmt: skip


@needs_triton
@pytest.mark.parametrize(
    "case", [c if c in QUICK else pytest.param(c, marks=pytest.mark.slow) for c in CASES]
)
def test_triton_interpreted(interpreter, case):
    assert interpreter.submit(triton_error, case, torch.float32).result() < TOLERANCE[torch.float32]


def with_triton(drafts: int, chosen: slice) -> torch.Tensor:
    """The outputs of the `chosen` of two requests, with texts of 40 and 700 tokens.

    Each has `drafts` children."""
    arena, feeds = Arena([(2, 16, 16)], torch.float32, torch.device("cpu")), []
    for length in (40, 700):
        tree, cache = TokenTree([0] * length), arena.take(800)
        pack([Feed(tree, cache, tree.trunk[:], [])], arena)
        feeds.append(
            Feed(tree, cache, [tree.add(tree.trunk[-1], token) for token in range(drafts)], [])
        )
    packing = pack(feeds[chosen], arena).packing
    for tensor in (*arena.keys, *arena.values):
        tensor.normal_(generator=torch.Generator().manual_seed(0))
    q = (
        torch.randn(2, drafts, 4, 16, generator=torch.Generator().manual_seed(1))[chosen]
        .flatten(0, 1)
        .transpose(0, 1)
    )
    return attend_with_triton(q, packing, 0, 0.25)


@needs_triton
@pytest.mark.parametrize("drafts", [5])
def test_what_a_request_gets_does_not_depend_on_the_batch(interpreter, drafts):
    """The number of programs that share a request's rows depends on that request alone."""
    both, *single = (
        interpreter.submit(with_triton, drafts, part).result()
        for part in (slice(2), slice(1), slice(1, 2))
    )
    assert torch.equal(both, torch.cat(single))


def of_one_token(
    dtype: torch.dtype, text: int, reach: Reach | None, fed: int, wrong: int, more: int
) -> torch.Tensor:
    """What the last token of a text gets, by the pass that feeds it.

    Args:
        dtype: of queries, keys and values
        text: tokens of the text
        reach: how many of them a token sees
        fed: how many of them this pass feeds
        wrong: how many other tokens stand before each of those, of which it sees none
        more: tokens after it in the same pass
    """
    numbers = torch.Generator().manual_seed(3)
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
    packing = pack(
        [Feed(tree, cache, nodes, [])], arena, window=reach.window if reach else 0
    ).packing
    first = cache.first
    for tensor, numbers_of in zip((*arena.keys, *arena.values), own, strict=True):
        tensor.normal_(generator=torch.Generator().manual_seed(0))
        tensor[[cache.base + cache.row[node] for node in path[first:]]] = numbers_of[first:]
    q = torch.randn(2, len(nodes), 16).to(dtype)
    q[:, last := len(nodes) - len(further) - 1] = asking
    return attend_with_triton(q, packing, 0, 0.25)[last]


@needs_triton
@pytest.mark.parametrize(
    ("text", "reach", "passes"),
    [
        (70, None, 6),
        (1022, None, 6 if EVERYWHERE else 2),
        (70, Reach(30), 3),
        (70, Reach(30, chunked=True), 3),
        (2100, Reach(1030), 6 if EVERYWHERE else 2),
    ],
    ids=str,
)
def test_a_token_gets_the_same_bits_in_a_chain_a_tree_and_any_pass(
    interpreter, text, reach, passes
):
    """They were others in a tree, and where the rows of a pass went beyond a multiple of 1,024.

    So in bfloat16, in which near-ties are common, a draft could change the tokens. In a window they
    were others, too, once rows before it had been given back."""
    run = partial(interpreter.submit, of_one_token, torch.float16, text, reach)
    alone = run(1, 0, 0)
    others = [run(fed, wrong, more) for fed, wrong, more in OTHER_PASSES[:passes]]
    assert all(torch.equal(other.result(), alone.result()) for other in others)


# How many of the text's tokens are fed, the wrong ones before each, and those after the last.
OTHER_PASSES = [(5, 0, 0), (2, 3, 1), (1, 0, 4), (33, 0, 31), (5, 2, 0), (20, 1, 24)]


def by_definition(
    packing: Packing, feeds: list[Feed], reach: Reach, heads: int, sinks
) -> torch.Tensor:
    """Attention over each token's own ancestors, back to `reach`: (tokens, heads, D)."""
    (key,), (value,), outs = packing.keys, packing.values, []
    for feed in feeds:
        for node in feed.nodes:
            least = reach.first(feed.tree.depths[node])
            path = [n for n in feed.tree.lineage(node) if feed.tree.depths[n] >= least]
            rows = [feed.cache.base + feed.cache.row[n] for n in path]
            k, v = (t[rows].repeat_interleave(heads // t.shape[1], 1) for t in (key, value))
            scores = (
                torch.einsum("hd,rhd->hr", query_of(packing, heads)[len(outs)], k)
                * key.shape[-1] ** -0.5
            )
            scores = torch.cat([scores, sinks[:, None]], 1)
            outs.append(torch.einsum("hr,rhd->hd", scores.softmax(1)[:, :-1], v))
    return torch.stack(outs)


def query_of(packing: Packing, heads: int) -> torch.Tensor:
    size = packing.keys[0].shape[-1]
    return torch.randn(
        len(packing.rows),
        heads,
        size,
        generator=torch.Generator().manual_seed(1),
        dtype=torch.float64,
    )


@pytest.mark.parametrize("shapes", ["chains", "prompts", "mixed"])
@pytest.mark.parametrize(
    "reach", [Reach(1), Reach(7), Reach(200), Reach(7, chunked=True)], ids=repr
)
def test_how_far_back_a_token_sees(shapes, reach):
    """A packing attends to each token's ancestors, with windows, chunks and sinks."""
    packing, feeds = draw_feeds(3, shapes, reach=reach)
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    q = query_of(packing, 4)
    exact = by_definition(packing, feeds, reach, 4, sinks)
    # what is there already
    k, v = (t[0][packing.rows].transpose(0, 1)[None] for t in (packing.keys, packing.values))
    ours = attend_layer(q.transpose(0, 1)[None], k, v, packing, 0, q.shape[-1] ** -0.5, 0.0, sinks)
    torch.testing.assert_close(ours[0], exact)


# KB of shared memory that one block of threads may have, by capability
SHARED = {75: 64, 80: 163, 89: 99, 90: 227}
# sizes of keys and values, query heads per key head
HEADS = [(64, 64, 4), (128, 128, 8), (256, 256, 1), (40, 24, 3)]


# Those that failed once, and each number type and size somewhere.
SMALL, USUAL, LARGE, ODD = HEADS
COMPILED = [
    (75, torch.float16, LARGE, "long"), (75, torch.float16, ODD, "short"),
    (75, torch.float32, USUAL, "tree"), (80, torch.bfloat16, USUAL, "short"),
    (89, torch.bfloat16, USUAL, "long"), (90, torch.bfloat16, SMALL, "tree"),
    (90, torch.float32, LARGE, "long"),
]  # fmt: skip


@needs_triton
@pytest.mark.parametrize(("capability", "dtype", "heads", "form"), COMPILED, ids=str)
def test_triton_compiles_for_cuda(monkeypatch, tmp_path, capability, dtype, heads, form):
    """Down to machine code, which needs no device, and into the shared memory of the card.

    Three times the compiler refused what the interpreter accepts: a float as a condition, for
    capability 7.5 a boolean that leaves an `if`, and a name that stands for pointers of two shapes,
    where keys and values are of different sizes. For 7.5, heads of 256 also took 96 KB of 64."""
    import triton
    from triton.backends.compiler import GPUTarget

    from decoders.engine.attention.kernels import STAGES, ancestors, join, kernel, tiling

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    key_size, value_size, groups = heads
    constants = {
        "GROUPS": groups,
        "KEY_HEADS": 2,
        "HEADS": 2 * groups,
        "KEY_SIZE": key_size,
        "VALUE_SIZE": value_size,
    }
    constants |= {
        "SINKS": heads == HEADS[-1],
        "SOFTCAP": 3.0 if heads == HEADS[-1] else 0.0,
        "q_size": 1,
    }
    constants |= {"TREE": form == "tree", "SPLIT": form != "long"}
    constants |= tiling(form != "long", form == "tree", groups, key_size, value_size, dtype)
    numbers = {torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float32: "*fp32"}[dtype]
    types = dict.fromkeys(("q", "keys", "values", "sinks", "out"), numbers) | {
        "parts": "*fp32",
        **dict.fromkeys(("table", "order", "counts"), "*i32"),
        "masks": "*u8",
        "scale": "fp32",
    }
    types |= dict.fromkeys(constants, "constexpr")
    for function in (kernel, join, ancestors):
        signature = {name: types.get(name, "i32") for name in function.arg_names}
        # As launched: torch's memory is aligned, and the strides of queries are multiples of 16
        # where heads are.
        aligned = [name for name in signature if str(types.get(name)).startswith("*")]
        aligned += ["q_head", "q_token"] if key_size % 16 == 0 and function is kernel else []
        attributes = {
            (function.arg_names.index(name),): [["tt.divisibility", 16]] for name in aligned
        }
        fixed = {name: value for name, value in constants.items() if name in signature}
        source = triton.compiler.ASTSource(function, signature, fixed, attributes)
        built = triton.compile(
            source, target=GPUTarget("cuda", capability, 32), options={"num_stages": STAGES}
        )
        assert built.asm["cubin"]
        assert built.metadata.shared <= SHARED[capability] * 1024


def test_a_layout_that_sdpa_may_answer_with(monkeypatch):
    """On CUDA its memory-efficient kernel returns heads side by side in memory.

    With grouped heads, a view of the result raised an error as soon as a model was loaded."""
    plain = scaled_dot_product_attention

    def transposed(*args, **options):
        return plain(*args, **options).transpose(1, 2).contiguous().transpose(1, 2)

    p = draw_pass(0, "mixed", 3, layout=(1, 8, 8))
    q = torch.randn(8, len(p.rows), 8, dtype=torch.float64)
    expected = attend_one_by_one(q, p, 0, 0.3)
    monkeypatch.setattr(interface, "scaled_dot_product_attention", transposed)
    torch.testing.assert_close(attend_one_by_one(q, p, 0, 0.3), expected)


@needs_triton
def test_a_way_that_fails_at_its_first_launch(monkeypatch, caplog):
    """Triton is chosen if there is a compiler, but its launchers also need Python.h.

    Its error came through raw. Here it finds no driver. Now there is one warning, and the same
    tokens by the next way."""
    prompts, options = (
        [[1, 2, 3], [4], list(range(5, 30))],
        {"max_new_tokens": 12, "ignore_eos": True},
    )
    model = build(num_key_value_heads=2)
    pair = partial(ModelPair, model, model, passes="plain")
    expected = [r.tokens for r in generate(pair(), prompts, "specinfer", **options)]
    caplog.clear()
    monkeypatch.setattr(interface, "FAILED", set())
    monkeypatch.setattr(interface, "takes_kernels", lambda device, dtype: True)
    monkeypatch.setattr(interface, "TRITON", True)
    monkeypatch.setattr(interface, "choose_way", partial(choose_way, flash=True, triton=True))
    found = [r.tokens for r in generate(pair(), prompts, "specinfer", **options)]
    said = [r.getMessage() for r in caplog.records if r.name == "decoders"]
    assert {m.split(" does not run here (")[0] for m in said} == {"FlashAttention", "Triton"}
    assert len(said) == 2
    assert found == expected


@needs_cuda
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_triton_on_cuda(case, dtype):
    assert triton_error(case, dtype, "cuda") < TOLERANCE[dtype]


FLASH_CASES = (
    "chains",
    "prompts",
    "single tokens",
    "window, chains",
    "window, prompts",
    "window, single tokens",
)


def documented_varlen_attn(
    query,
    key,
    value,
    cu_seq_q,
    cu_seq_k,
    max_q,
    max_k,
    *,
    scale,
    window_size,
    enable_gqa,
    seqused_k,
):
    """The documentation of `varlen_attn`, as a loop."""
    left, right = window_size
    if left < 0:
        assert window_size == (
            (-1, 0) if max_q > 1 else (-1, -1)
        )  # one token sees all keys anyway, and may so split them
    assert all(
        t.dtype == torch.int32 and t.is_contiguous() for t in (cu_seq_q, cu_seq_k, seqused_k)
    )
    assert max_q == cu_seq_q.diff().max()
    assert max_k == seqused_k.max()
    out = torch.empty_like(query)
    for i, used in enumerate(seqused_k.tolist()):
        queries = slice(cu_seq_q[i], cu_seq_q[i + 1])
        rows = slice(cu_seq_k[i], cu_seq_k[i] + used)
        q, k, v = (t[None].transpose(1, 2) for t in (query[queries], key[rows], value[rows]))
        bias = causal_lower_right(q.shape[2], used)
        if left >= 0:
            assert right == 0
            last = used - q.shape[2] + torch.arange(q.shape[2])[:, None]
            bias = (torch.arange(used) <= last) & (torch.arange(used) >= last - left)
        result = scaled_dot_product_attention(q, k, v, bias, scale=scale, enable_gqa=enable_gqa)
        out[queries] = result[0].transpose(0, 1)
    return out


@pytest.mark.parametrize("case", [*FLASH_CASES])
def test_flash_is_called_as_documented(monkeypatch, case):
    monkeypatch.setattr(interface, "varlen_attn", documented_varlen_attn)
    drawn, run = CASES[case]
    assert (
        worst_error(attend_chains, draw_pass(0, **drawn), torch.float32, **run)
        < TOLERANCE[torch.float32]
    )


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [*FLASH_CASES])
def test_flash_on_cuda(case, dtype):
    if not interface.FLASH:
        pytest.skip("this torch has no varlen_attn with seqused_k and grouped heads")
    drawn, run = CASES[case]
    assert (
        worst_error(attend_chains, draw_pass(0, **drawn), dtype, device="cuda", **run)
        < TOLERANCE[dtype]
    )


@pytest.mark.parametrize(
    ("device", "capability", "dtype", "size", "softcap", "trees", "way"),
    [
        ("cpu", None, torch.float32, 64, 0, False, "attend_one_by_one"),
        ("cuda", (9, 0), torch.bfloat16, 64, 0, False, "attend_chains"),
        ("cuda", (9, 0), torch.bfloat16, 64, 0, True, "attend_with_triton"),
        ("cuda", (9, 0), torch.bfloat16, 64, 3, False, "attend_with_triton"),
        ("cuda", (9, 0), torch.float64, 64, 0, True, "attend_one_by_one"),
        ("cuda", (7, 5), torch.float16, 64, 0, False, "attend_one_by_one"),
    ],
)
@needs_triton
def test_the_way_is_chosen_by_capability(
    monkeypatch, device, capability, dtype, size, softcap, trees, way
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    q = SimpleNamespace(device=torch.device(device), dtype=dtype, shape=(4, 3, size))
    segments = torch.tensor([(0, 1, 0, 5, -1), (1, 3, 8, 1, 0 if trees else -1)])
    values = torch.empty(0, 2, size)
    run = q, values, segments, softcap
    assert choose_way(*run, flash=True, triton=True).__name__ == way
    without_flash = way.replace("attend_chains", "attend_with_triton")
    assert choose_way(*run, flash=False, triton=True).__name__ == without_flash
    assert choose_way(*run, flash=False, triton=False) is attend_one_by_one
