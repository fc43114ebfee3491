"""Every way to attend gives what plain attention, request by request, gives in float64.

Without a CUDA device, Triton's kernel is compiled but runs under the interpreter, which has no bfloat16 products, and FlashAttention
is stood in for by what `torch.nn.attention.varlen` documents. What needs the device is skipped without one.
"""

import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from decoders.engine import attention
from decoders.engine.attention import attend_chains, attend_one_by_one, choose_way
from decoders.engine.cache import Arena
from decoders.engine.model import Engine, PackedModel
from decoders.engine.packing import Feed, Packing, pack
from decoders.engine.padding import fill_up
from decoders.tree import TokenTree
from tests.models import build

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not made for this platform")
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def draw_pass(seed: int, shapes: str, layout=(2, 16, 16), requests=5, padded=False) -> Packing:
    """A pass of requests with 0 to 69 rows behind them in an arena with gaps, their tokens chains, trees or both, in float64."""
    rng = random.Random(seed)
    arena, feeds = Arena([layout], torch.float64, torch.device("cpu")), []
    for _ in range(requests):
        tree = TokenTree([0] * rng.randrange(1, 71))
        cache = arena.take(150 + rng.randrange(9))
        if shapes != "prompts":
            fed = tree.trunk if padded else tree.trunk[:-1]  # only drafts are padded, which follow a whole prompt
            if fed:
                pack([Feed(tree, cache, fed, [])], arena)
            branches = rng.random() < {"chains": 0, "trees": 1, "mixed": 0.5}[shapes]
            for token in range(rng.choice([1, 5, 20])):
                tips = [tree.trunk[-1], *tree.tail]
                tree.add(rng.choice(tips) if branches else tips[-1], token)
        feeds.append(Feed(tree, cache, [n for n in (*tree.trunk, *tree.tail) if n not in cache.row], []))
    rng.shuffle(feeds)
    if padded:
        feeds = fill_up(feeds)
        assert len({len(feed.nodes) for feed in feeds}) == 1
    packing = pack(feeds, arena, 8).packing
    generator = torch.Generator().manual_seed(seed)
    for tensor in (*arena.keys, *arena.values):
        tensor.normal_(generator=generator)
    return packing


def worst_error(way, packing: Packing, dtype: torch.dtype, heads: int, softcap: float = 0.0, device: str = "cpu"):
    """How far `way` in this dtype and on this device is from plain attention in float64 over the same numbers."""
    keys, values = (t[0].to(dtype) for t in (packing.keys, packing.values))
    tokens, size = len(packing.rows), keys.shape[-1]
    # A model hands over its queries as a transposed view.
    q = torch.randn(tokens, heads, size, generator=torch.Generator().manual_seed(1)).to(dtype).transpose(0, 1)
    plan = packing.segments, packing.table, packing.masks, packing.biases
    exact = attend_one_by_one(q.double(), keys.double(), values.double(), *plan, size**-0.5, softcap)
    q, keys, values, table, masks = (t.to(device) for t in (q, keys, values, packing.table, packing.masks))
    biases = packing.biases.to(device, dtype)
    ours = way(q, keys, values, packing.segments, table, masks, biases, size**-0.5, softcap)
    assert ours.shape == (tokens, heads, values.shape[-1])
    assert ours.is_contiguous()
    return (ours.cpu() - exact).abs().max().item()


CASES = {
    "chains": ({"shapes": "chains"}, {"heads": 4}),
    "prompts": ({"shapes": "prompts", "requests": 2}, {"heads": 4}),
    "trees, groups of 3, sizes that are no powers of two": ({"shapes": "trees", "layout": (2, 20, 24)}, {"heads": 6}),
    "mixed, one key head for 8": ({"shapes": "mixed", "layout": (1, 8, 8), "requests": 3}, {"heads": 8}),
    "mixed, soft-capped": ({"shapes": "mixed"}, {"heads": 2, "softcap": 3.0}),
    "padded": ({"shapes": "mixed", "padded": True}, {"heads": 2}),
    "lone request with an empty companion": ({"shapes": "trees", "requests": 1}, {"heads": 2}),
}


def triton_error(case: str, dtype: torch.dtype, device: str = "cpu") -> float:
    from decoders.engine.kernels import attend_with_triton

    drawn, run = CASES[case]
    return worst_error(attend_with_triton, draw_pass(0, **drawn), dtype, device=device, **run)


@pytest.fixture(scope="module")
def interpreter():
    """A process in which Triton interprets its kernels, which must be settled before it is imported."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", "1")
            pool.submit(int).result()  # starts it
        yield pool


@needs_triton
@pytest.mark.parametrize("case", CASES)
def test_triton_interpreted(interpreter, case):
    assert interpreter.submit(triton_error, case, torch.float32).result() < TOLERANCE[torch.float32]


@needs_triton
def test_triton_interpreted_in_half_precision(interpreter):
    assert interpreter.submit(triton_error, "padded", torch.float16).result() < TOLERANCE[torch.float16]


@needs_triton
@pytest.mark.parametrize(("capability", "dtype", "softcap"), [(80, "bf16", 3.0), (90, "fp16", 0.0), (90, "fp32", 0.0)])
def test_triton_compiles_for_cuda(monkeypatch, tmp_path, capability, dtype, softcap):
    """Down to machine code, which takes no device. Was once refused (a float as a condition) where the interpreter had no objection."""
    import triton
    from triton.backends.compiler import GPUTarget

    from decoders.engine.kernels import kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    sizes = {"GROUPS": 3, "KEY_HEADS": 2, "KEY_SIZE": 20, "VALUE_SIZE": 24, "KEY_BLOCK": 32, "VALUE_BLOCK": 32}
    constants = {**sizes, "SOFTCAP": softcap, "TOKENS": 4, "LANES": 4, "ROWS": 32}
    types = dict.fromkeys(("q", "keys", "values", "out"), f"*{dtype}") | {
        "table": "*i32",
        "masks": "*u8",
        "scale": "fp32",
    }
    types |= dict.fromkeys(constants, "constexpr")
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    source = triton.compiler.ASTSource(kernel, signature, constants)
    assert triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]


@needs_cuda
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_triton_on_cuda(case, dtype):
    assert triton_error(case, dtype, "cuda") < TOLERANCE[dtype]


def documented_varlen_attn(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale, window_size, enable_gqa, seqused_k
):
    """What the documentation of `varlen_attn` says, with a loop."""
    assert window_size == (-1, 0)
    assert all(t.dtype == torch.int32 and t.is_contiguous() for t in (cu_seq_q, cu_seq_k, seqused_k))
    assert max_q == cu_seq_q.diff().max()
    assert max_k == seqused_k.max()
    out = torch.empty_like(query)
    for i, used in enumerate(seqused_k.tolist()):
        queries = slice(cu_seq_q[i], cu_seq_q[i + 1])
        rows = slice(cu_seq_k[i], cu_seq_k[i] + used)
        q, k, v = (t[None].transpose(1, 2) for t in (query[queries], key[rows], value[rows]))
        bias = causal_lower_right(q.shape[2], used)
        result = scaled_dot_product_attention(q, k, v, bias, scale=scale, enable_gqa=enable_gqa)
        out[queries] = result[0].transpose(0, 1)
    return out


@pytest.mark.parametrize("case", ["chains", "prompts"])
def test_flash_is_called_as_documented(monkeypatch, case):
    monkeypatch.setattr(attention, "varlen_attn", documented_varlen_attn)
    drawn, run = CASES[case]
    assert worst_error(attend_chains, draw_pass(0, **drawn), torch.float32, **run) < TOLERANCE[torch.float32]


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", ["chains", "prompts"])
def test_flash_on_cuda(case, dtype):
    if not attention.FLASH:
        pytest.skip("this torch has no varlen_attn with seqused_k and grouped heads")
    drawn, run = CASES[case]
    assert worst_error(attend_chains, draw_pass(0, **drawn), dtype, device="cuda", **run) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("device", "capability", "dtype", "size", "softcap", "trees", "way"),
    [
        ("cpu", None, torch.float32, 64, 0, False, "attend_one_by_one"),
        ("cuda", (9, 0), torch.bfloat16, 64, 0, False, "attend_chains"),
        ("cuda", (9, 0), torch.bfloat16, 64, 0, True, "attend_with_triton"),
        ("cuda", (9, 0), torch.bfloat16, 64, 3, False, "attend_with_triton"),
        ("cuda", (9, 0), torch.bfloat16, 20, 0, False, "attend_with_triton"),
        ("cuda", (9, 0), torch.float32, 64, 0, False, "attend_with_triton"),
        ("cuda", (9, 0), torch.float64, 64, 0, True, "attend_one_by_one"),
        ("cuda", (7, 5), torch.float16, 64, 0, False, "attend_one_by_one"),
    ],
)
@needs_triton
def test_the_way_is_chosen_by_capability(monkeypatch, device, capability, dtype, size, softcap, trees, way):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    q = SimpleNamespace(device=torch.device(device), dtype=dtype, shape=(4, 3, size))
    segments = torch.tensor([(0, 1, 0, 5, -1), (1, 3, 8, 1, 0 if trees else -1)])
    values = torch.empty(0, 2, size)
    run = q, values, segments, softcap
    assert choose_way(*run, flash=True, triton=True).__name__ == way
    without_flash = way.replace("attend_chains", "attend_with_triton")
    assert choose_way(*run, flash=False, triton=True).__name__ == without_flash
    assert choose_way(*run, flash=False, triton=False) is attend_one_by_one


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_whole_passes_on_cuda(dtype):
    """Chains, then trees, on a model on the device: the logits of the CPU in float64."""
    answers = {}
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        engine = Engine(PackedModel(build(dtype=dtype).to(device, kind), "target"))
        trees = [TokenTree(range(1, 30)), TokenTree([5])]
        for tree in trees:
            engine.admit(tree, 8)
        chains = engine.run([(tree, tree.trunk[-1:]) for tree in trees])
        wants = [(tree, [tree.add(tree.trunk[-1], token) for token in (3, 4, 5)]) for tree in trees]
        answers[device] = torch.cat([answer.logits.cpu().double() for answer in (*chains, *engine.run(wants))])
    error = (answers["cuda"] - answers["cpu"]).norm() / answers["cpu"].norm()
    assert error < {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
