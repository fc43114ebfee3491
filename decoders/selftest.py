"""`python -m decoders.selftest`: whether everything runs right on this machine, and how near its passes come to its memory's speed.

Each section runs in a process of its own: an illegal address on a GPU spoils the process it happens in. What needs a GPU says so and is
left out without one. Exit code 0 means that all is well. `python -m decoders.selftest NAME` runs one section in this process.
"""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from decoders import ModelPair, catalog, generate
from decoders.distribution import Whole
from decoders.engine import attention
from decoders.engine.arenas import ReachRows
from decoders.engine.cache import Arena, CacheRows
from decoders.engine.model import Engine, PackedModel
from decoders.engine.packing import Feed, PackedInputs, pack
from decoders.engine.reach import Reach
from decoders.sampling import SeededSource
from decoders.tree import TokenTree
from decoders.warp import Warping, warp

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
WHOLE = {
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}  # of a whole model's logits, relative to their length
LIMIT = 600  # seconds that one section may take
PROMPTS = [[5, 6, 7, 8], [3], [9] * 12, list(range(20, 60))]


class Wrong(Exception):
    """What a section found to be wrong, in one sentence."""


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def llama(dtype: torch.dtype = torch.float64, **sizes: float) -> Any:
    """A random model, small unless `sizes` say otherwise."""
    torch.manual_seed(0)
    given: dict[str, Any] = {"vocab_size": 67, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.3} | sizes  # fmt: skip
    model: Any = LlamaForCausalLM(LlamaConfig(**given, bos_token_id=None, eos_token_id=None))
    return model.to(device(), dtype).eval()


def machine() -> Iterator[str]:
    """The machine, versions, and the ways to attend that may be taken here."""
    yield f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    yield f"{os.cpu_count()} processors, {torch.get_num_threads()} threads, {platform.machine()}"
    if device().type == "cuda":
        major, minor = torch.cuda.get_device_capability()
        memory = torch.cuda.get_device_properties(0).total_memory / 1e9
        yield f"{torch.cuda.get_device_name()}, capability {major}.{minor}, {memory:.0f} GB, CUDA {torch.version.cuda}"
        yield f"FlashAttention {'may be' if attention.FLASH else 'is not'} taken, Triton {'may be' if attention.TRITON else 'is not'}"
    else:
        yield "There is no CUDA device: kernels are left out, everything else runs on the CPU."


def ways() -> Iterator[str]:
    """The error of each way to attend, compared with float64: heads of 64 to 256, 1 to 8 query heads per key head, 1 to 4,000 rows, with
    and without a window and sinks."""
    taken: dict[str, Callable] = {"one by one": attention.attend_one_by_one}
    if device().type == "cuda" and torch.cuda.get_device_capability() >= (8, 0):
        taken |= {"Triton": attention.attend_with_triton} if attention.TRITON else {}
        taken |= {"FlashAttention": attention.attend_chains} if attention.FLASH else {}
    elif device().type == "cpu":
        yield "Triton and FlashAttention need a GPU: left out."
    for name, way in taken.items():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            if name == "FlashAttention" and dtype == torch.float32:
                continue
            errors = [
                error_of(
                    way, dtype, size, groups, rows, branching, window, sunk=window > 0 and name != "FlashAttention"
                )
                for size in (64, 128, 256)
                for groups in (1, 4, 8)
                for rows in (1, 70, 4000)
                for branching in ((False,) if name == "FlashAttention" else (False, True))
                for window in (0, 33)
            ]
            yield f"{name}, {str(dtype)[6:]}: error at most {max(errors):.1e} in {len(errors)} passes"
            if not max(errors) <= TOLERANCE[dtype]:
                raise Wrong(f"{name} is wrong in {dtype}: its error should be at most {TOLERANCE[dtype]:.0e}")


def error_of(
    way: Callable, dtype: torch.dtype, size: int, groups: int, rows: int, branching: bool, window: int, sunk: bool
) -> float:
    """How far a way to attend is from float64 for two requests of which one has `rows` rows behind it."""
    kind = partial(ReachRows, reach=Reach(window)) if window else CacheRows
    arena, feeds = Arena([(2, size, size)], dtype, device(), kind=kind), []
    for past in (rows, 3):
        tree = TokenTree([0] * past)
        cache = arena.take(past + 16)
        assert cache is not None  # an arena without bounds has room
        arena.append(cache, tree, tree.trunk)
        nodes = [tree.trunk[-1]]
        for i in range(7):
            nodes.append(tree.add(nodes[i // 2] if branching else nodes[-1], 0))
        feeds.append(Feed(tree, cache, nodes[1:], []))
    _, _, _, packing = _fields(pack(feeds, arena, window=window))
    draw = torch.Generator().manual_seed(0)
    for tensor in (*arena.keys, *arena.values):
        tensor.copy_(torch.randn(tensor.shape, generator=draw))
    q = torch.randn(2 * groups, len(packing.rows), size, generator=draw).to(device(), dtype)
    plan = packing.segments, packing.table, packing.masks
    sinks = torch.randn(2 * groups, generator=draw).to(dtype) if sunk else None
    rest = size**-0.5, 0.0, window
    there = sinks if sinks is None else sinks.to(device())
    ours = way(q, packing.keys[0], packing.values[0], *plan, packing.biases, *rest, there)
    x, keys, values, biases = (t.cpu().double() for t in (q, packing.keys[0], packing.values[0], packing.biases))
    segments, table, masks = (t.cpu() for t in plan)
    here = sinks if sinks is None else sinks.double()
    exact = attention.attend_one_by_one(x, keys, values, segments, table, masks, biases, *rest, here)
    return (ours.cpu() - exact).abs().max().item()


def _fields(inputs: PackedInputs) -> tuple:
    return inputs.input_ids, inputs.position_ids, inputs.wanted, inputs.packing


def recorded() -> tuple[str, torch.dtype]:
    """How passes are replayed on this device, and in which number type that is tested: CUDA graphs need the kernel, which has no float64."""
    return ("graphs", torch.float32) if device().type == "cuda" else ("recorded", torch.float64)


def passes() -> Iterator[str]:
    """Recorded passes, CUDA graphs on a GPU, compared with the model's own modules: the same tokens from every decoder."""
    kind, dtype = recorded()
    model, draft = llama(dtype), llama(dtype, num_hidden_layers=1)
    pairs = [ModelPair(model, draft, passes=each) for each in (kind, "plain")]
    for name in catalog:
        options = {"max_new_tokens": 16, "ignore_eos": True, "seed": 1}
        ours, plain = ([r.tokens for r in generate(pair, PROMPTS, name, **options)] for pair in pairs)
        if ours != plain:
            raise Wrong(f"{name} gives other tokens with recorded passes than with plain ones")
    said = {packed.engine_name for packed in pairs[0].packed.values()}
    if not all("replayed" in name for name in said):
        raise Wrong(f"the passes are not recorded, they run as {' and '.join(said)}")
    yield f"{' and '.join(said)}, {str(dtype)[6:]}: {len(catalog)} decoders, {len(PROMPTS)} requests each, the same tokens"


def whole() -> Iterator[str]:
    """A model on this device compared with float64 on the CPU: the error of its logits in each number type, and in float64 the same
    tokens from every decoder."""
    there, here = llama(), llama().cpu()
    for dtype, allowed in WHOLE.items():
        exact = logits_of(llama(dtype).cpu().double())
        error = float((logits_of(llama(dtype)) - exact).norm() / exact.norm())
        yield f"{str(dtype)[6:]}: prompts, chains and trees, error {error:.1e}"
        if not error <= allowed:
            raise Wrong(f"a whole model is wrong in {dtype}: its error should be at most {allowed:.0e}")
    if device().type == "cpu":
        yield "A comparison of tokens with the CPU needs a GPU: left out."
        return
    for name in catalog:
        options = {"max_new_tokens": 16, "ignore_eos": True, "seed": 2}
        ours, cpu = ([r.tokens for r in generate(ModelPair(m, m), PROMPTS, name, **options)] for m in (there, here))
        if ours != cpu:
            raise Wrong(f"{name} gives other tokens on {device()} than on the CPU")
    yield f"{len(catalog)} decoders, {len(PROMPTS)} requests each: the tokens of the CPU"


def logits_of(model: Any) -> torch.Tensor:
    """What passes of all prompts, of a chain after each, and of a tree after these say: (n, V), on the host in float64."""
    engine, trees, found = Engine(PackedModel(model, "target", passes="plain")), [TokenTree(p) for p in PROMPTS], []
    asked = {tree: tree.trunk[-1:] for tree in trees}
    for grown in (0, 3, 6):
        for tree in trees:
            if not grown:
                engine.admit(tree, 64)
                continue
            tip, asked[tree] = asked[tree][-1], []
            for i in range(grown):
                parent = [tip, *asked[tree]][i if grown == 3 else i // 2]
                asked[tree].append(tree.add(parent, 7 * i))
        found.append(engine.run(list(asked.items()))[0].rows.cpu().double())
    return torch.cat(found)


def draws() -> Iterator[str]:
    """10,000 tokens drawn on this device, with temperature, top-k and top-p: those that the CPU draws."""
    if device().type == "cpu":
        yield "A comparison of draws with the CPU needs a GPU: left out."
        return
    logits = torch.randn(100, 4096, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    for warping in (Warping(), Warping(0.7, 20, 0.9), Warping(1.3, 0, 0.95)):
        drawn = []
        for where in ("cpu", device()):
            source = SeededSource(0)
            drawn.append([source.draw(Whole(row), 100) for row in warp(logits.to(where), warping)])
        differing = sum(a != b for ours, cpu in zip(*drawn, strict=True) for a, b in zip(ours, cpu, strict=True))
        yield f"{warping}: {differing} of 10,000 differ"
        if differing > 2:  # a uniform number may fall on the edge between two tokens, which rounding moves
            raise Wrong(f"draws differ between {device()} and the CPU")


SIZES = {
    "28M": {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4},
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8},
    "7B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip


def speed() -> Iterator[str]:
    """Milliseconds of a pass of one token and of eight, and the least that reading the weights takes; random models, grouped heads."""
    names, dtype = (["1B", "7B"], torch.bfloat16) if device().type == "cuda" else (["28M"], torch.float32)
    rate = bandwidth()
    yield f"memory is read at {rate / 1e9:.0f} GB/s"
    for name in names:
        vocabulary = 4096 if name == "28M" else 32000
        model = llama(dtype, **SIZES[name], vocab_size=vocabulary, initializer_range=0.02)
        for kind in ("plain", recorded()[0]):
            packed = PackedModel(model, "target", passes=kind)
            times = [seconds_of_pass(packed, tokens) for tokens in (1, 8)]
            floor = packed.weight_bytes / rate
            yield (
                f"{name}, {kind}: one token {1e3 * times[0]:.2f} ms ({floor / times[0]:.0%} of the floor of {1e3 * floor:.2f} ms), "
                f"eight {1e3 * times[1]:.2f} ms"
            )


def bandwidth() -> float:
    """Bytes a second that a sum over 256 MiB reads."""
    data = torch.ones(2**26, device=device())
    return data.nbytes / median_seconds(data.sum)


def seconds_of_pass(packed: PackedModel, tokens: int) -> float:
    """Seconds of a pass of one request with 64 rows behind it, packing included."""
    engine, tree = Engine(packed), TokenTree([1 + i % 60 for i in range(64)])
    engine.admit(tree, 256)
    engine.run([(tree, tree.trunk[-1:])])

    def one() -> None:
        tree.keep([tree.trunk[63]])
        nodes = [tree.trunk[63]]
        for token in range(tokens):
            nodes.append(tree.add(nodes[-1], token))
        engine.run([(tree, nodes[1:])])

    return median_seconds(one)


def median_seconds(action: Callable[[], object], repeats: int = 20) -> float:
    """Of `repeats` runs after three that warm up."""
    wait = torch.cuda.synchronize if device().type == "cuda" else lambda: None
    seconds = []
    for _ in range(repeats + 3):
        wait()
        began = time.perf_counter()
        action()
        wait()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[3:])


SECTIONS = {section.__name__: section for section in (machine, ways, draws, passes, whole, speed)}


def run(section: str) -> bool:
    """Print what one section says; returns whether all is well."""
    try:
        for line in SECTIONS[section]():
            print(f"  {line}", flush=True)
    except Wrong as error:
        print(f"  WRONG: {error}.", flush=True)
        return False
    return True


def run_all() -> bool:
    """Every section in a child process; returns whether all is well."""
    failed = []
    for name, section in SECTIONS.items():
        print(f"{name}: {' '.join(str(section.__doc__).split())}", flush=True)
        code: int | str
        try:
            code = subprocess.run([sys.executable, "-m", "decoders.selftest", name], timeout=LIMIT).returncode
        except subprocess.TimeoutExpired:
            code = f"no end after {LIMIT} s"
        if code != 0:
            failed.append(name)
            if code != 1:
                print(f"  FAILED ({code})", flush=True)
    print("All is well." if not failed else f"Something is wrong: {', '.join(failed)}.")
    return not failed


def main(arguments: list[str]) -> int:
    if not arguments:
        return 0 if run_all() else 1
    if arguments[0] not in SECTIONS or len(arguments) > 1:
        print(f"The sections are {', '.join(SECTIONS)}.", file=sys.stderr)
        return 2
    return 0 if run(arguments[0]) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
