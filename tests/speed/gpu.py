"""What a GPU makes of programs: right numbers, times beside the memory's floor, and energy.

    python -m tests.speed.gpu             on a CUDA device, some nine minutes
    python -m tests.speed.gpu --tiny      every section with small models, also on a CPU
    python -m tests.speed.gpu right       one section, in this process

Each section runs in its own process and prints its lines as they come; the table comes last. The
target is the embedded one inside a wider one, whose further layers read all their weights and add
exactly nothing: it accepts what the small one accepts and costs what an 8B costs. So its text is
the small model's, and its times and its energy are a large one's."""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

from decoders import ModelPair, catalog, generate, load_pair
from decoders.devices import device_of
from decoders.engine.models.packed import PackedModel
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests.models import build, build_both
from tests.speed.measure import table
from workbench.measuring.meter import open_meter

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = {
    "28M": {
        "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 4},
    "1B": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8},
    "7B": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip
WIDE = {
    "8B": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128},
    "tiny": {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16},
}  # fmt: skip
# Seconds that a section may take on a GPU; on a CPU, where machines differ, TINY.
LIMITS = {
    "costs": 25, "right": 70, "passes": 75, "greedy": 110, "decoders": 140, "batches": 70,
    "energy": 50,
}  # fmt: skip
TINY = 600
AIMS = {
    "greedy": "8B at least 70% of the floor end to end, 1B 55%",
    "decoders": "speculative at least 2.2 times greedy at T=0, MTAD 1.2 times that, DSBD 1.5 times "
    "beam sampling",
    "batches": "16 requests at least 9 times one; unpadded at least as fast as padded",
}


def widened(small: Any, **sizes: int) -> LlamaForCausalLM:
    """A wider Llama that answers as a small one: its state lies in the first dimensions.

    Norms are of the wide state, so their weights shrink by the root of how many times it is wider,
    and their epsilon by as much. Heads are larger, so a frequency lies where the wide head has it.
    """
    s = small.config
    wider = sizes["hidden_size"] / s.hidden_size
    config = LlamaConfig(
        **{**sizes, "vocab_size": s.vocab_size, "initializer_range": 0.02},
        rms_norm_eps=s.rms_norm_eps / wider, max_position_embeddings=s.max_position_embeddings,
        rope_parameters=s.rope_parameters, tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=s.eos_token_id,
    )  # fmt: skip
    with torch.device(small.device):
        wide: Any = LlamaForCausalLM._from_config(config, dtype=small.dtype).eval()
    size = getattr(s, "head_dim", None) or s.hidden_size // s.num_attention_heads
    step = sizes["head_dim"] // size
    half = torch.arange(size // 2)
    dims = torch.cat([step * half, sizes["head_dim"] // 2 + step * half])
    group = s.num_attention_heads // s.num_key_value_heads
    groups = sizes["num_attention_heads"] // sizes["num_key_value_heads"]
    heads = range(s.num_attention_heads)
    places = [h // group * groups + h % group for h in heads]
    queries = torch.cat([place * sizes["head_dim"] + dims for place in places])
    keys = torch.cat([h * sizes["head_dim"] + dims for h in range(s.num_key_value_heads)])
    state, inner = torch.arange(s.hidden_size), torch.arange(s.intermediate_size)

    def put(big: Any, little: Any, rows: torch.Tensor, columns: torch.Tensor) -> None:
        big.weight.zero_()
        big.weight[rows[:, None], columns[None]] = little.weight

    def put_norm(big: Any, little: Any) -> None:
        big.weight.zero_()
        big.weight[state] = little.weight / wider**0.5

    with torch.no_grad():
        embedding = wide.model.embed_tokens.weight.zero_()
        embedding[:, state] = small.model.embed_tokens.weight
        for i, layer in enumerate(wide.model.layers):
            attention, mlp = layer.self_attn, layer.mlp
            if i >= s.num_hidden_layers:
                attention.v_proj.weight.zero_()
                mlp.up_proj.weight.zero_()
                continue
            own = small.model.layers[i]
            put(attention.q_proj, own.self_attn.q_proj, queries, state)
            attention.q_proj.weight.mul_(step**0.5)
            put(attention.k_proj, own.self_attn.k_proj, keys, state)
            put(attention.v_proj, own.self_attn.v_proj, keys, state)
            put(attention.o_proj, own.self_attn.o_proj, state, queries)
            put(mlp.gate_proj, own.mlp.gate_proj, inner, state)
            put(mlp.up_proj, own.mlp.up_proj, inner, state)
            put(mlp.down_proj, own.mlp.down_proj, state, inner)
            put_norm(layer.input_layernorm, own.input_layernorm)
            put_norm(layer.post_attention_layernorm, own.post_attention_layernorm)
        put_norm(wide.model.norm, small.model.norm)
        wide.lm_head.weight.zero_()
        wide.lm_head.weight[:, state] = small.lm_head.weight
    return wide


def pair_of(tiny: bool, passes: str = "program") -> ModelPair:
    """The embedded pair with its target widened to the shape of an 8B; a random one if tiny."""
    if tiny:
        target, draft = build_both(torch.float32)
        wide = widened(target, **WIDE["tiny"]).to(DEVICE)
        return ModelPair(wide, draft.to(DEVICE), passes=passes)
    pair = load_pair(device=DEVICE, dtype="bfloat16")
    wide = widened(pair.target, **WIDE["8B"])
    return ModelPair(wide, pair.draft, pair.tokenizer, passes=passes)


def prompts_of(pair: ModelPair, count: int) -> list[list[int]]:
    """Prompts of 20 to 64 tokens; words that begin a story, if the pair has a tokenizer."""
    begins = (
        "Once upon a time there was a",
        "One day a girl named Lily saw a",
        "The old man and his",
    )
    if pair.tokenizer is None:
        return [[(7 * i + 3 * n) % 60 + 1 for i in range(20)] for n in range(count)]
    made = []
    for n in range(count):
        words = f"{begins[n % 3]} {['dog', 'cat', 'bird', 'boy', 'fish', 'tree'][n // 3 % 6]} " * 4
        made.append(pair.tokenizer(words)["input_ids"][:64])
    return made


def seconds_of(action: Callable[[], object], repeats: int = 5, warm: int = 2) -> float:
    """The median time of an action, with the device idle before and after."""
    times = []
    for turn in range(warm + repeats):
        device_of(DEVICE).synchronize()
        began = time.perf_counter()
        action()
        device_of(DEVICE).synchronize()
        if turn >= warm:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def rate(tiny: bool) -> float:
    """Bytes a second that a copy on the device reads and writes."""
    a = torch.empty(2**20 if tiny else 2**30, dtype=torch.uint8, device=DEVICE)
    b = torch.empty_like(a)
    return 2 * len(a) / seconds_of(lambda: b.copy_(a))


def costs(tiny: bool) -> Iterator[str]:
    """What a copy, an operator, a node of a graph and a trip to the device cost."""
    name = device_of(DEVICE).name
    yield f"{name}, torch {torch.__version__}: copies move {rate(tiny) / 1e12:.3f} TB/s"
    x, count = torch.zeros(16, device=DEVICE), 100 if tiny else 1000

    def operators() -> None:
        for _ in range(count):
            x.add_(1)

    yield f"an eager operator: {1e6 * seconds_of(operators) / count:.2f} us"
    if DEVICE.type == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            operators()
        yield f"a node of a graph: {1e6 * seconds_of(graph.replay) / count:.2f} us"
    host = torch.zeros(4096, pin_memory=DEVICE.type == "cuda")
    there = torch.zeros(4096, device=DEVICE)

    def trip() -> None:
        there.copy_(host, non_blocking=True)
        host.copy_(there, non_blocking=True)
        device_of(DEVICE).synchronize()

    yield f"a trip there and back of 16 kB, pinned: {1e6 * seconds_of(trip, 20):.1f} us"


def right(tiny: bool) -> Iterator[str]:
    """Programs beside float64; every decoder alone and in a batch; speculative beside greedy."""
    pair = pair_of(tiny)
    yield f"target: {pair.packed['target'].engine_name}"
    packed = pair.packed["target"]
    for dtype in (torch.float32, packed.dtype):
        wanted = logits_of(PackedModel(build(dtype=dtype).double(), "target", passes="plain"))
        found = logits_of(PackedModel(build(dtype=dtype).to(DEVICE), "target")).double().cpu()
        error = float((found - wanted).norm() / wanted.norm())
        yield f"logits in {str(dtype)[6:]} beside float64: error {error:.1e}"
    prompts, count = prompts_of(pair, 4), 16 if tiny else 40
    wrong = []
    for name in catalog:
        options: dict[str, Any] = {"max_new_tokens": count, "ignore_eos": True, "temperature": 0}
        together = generate(pair, prompts, name, seed=[1, 2, 3, 4], **options)
        alone = [
            generate(pair, prompt, name, seed=seed, **options)
            for seed, prompt in enumerate(prompts[:2], 1)
        ]
        if [r.tokens for r in alone] != [r.tokens for r in together[:2]]:
            wrong.append(name)
    yield f"alone as in a batch: {len(catalog) - len(wrong)} of {len(catalog)} decoders" + (
        f"; not {', '.join(wrong)}" if wrong else ""
    )
    options = {"max_new_tokens": 24 if tiny else 500, "ignore_eos": True, "temperature": 0}
    results = [generate(pair, prompts, name, **options) for name in ("greedy", "speculative")]
    same = sum(a.tokens == b.tokens for a, b in zip(*results, strict=True))
    yield f"speculative as greedy at T=0: {same} of 4 texts of {options['max_new_tokens']} tokens"


@torch.inference_mode()
def logits_of(packed: PackedModel) -> torch.Tensor:
    engine, tree = PackedPasses(packed), TokenTree([5, 6, 7, 8, 9])
    engine.admit(tree, 8)
    (answer,) = engine.run([(tree, tree.trunk[-3:])])
    return answer.rows


def passes(tiny: bool) -> Iterator[str]:
    """A pass of 1, 5, 16, 64 and 80 tokens beside the time that its bytes take."""
    speed = rate(tiny)
    for name, sizes in {"tiny": WIDE["tiny"]}.items() if tiny else SIZES.items():
        vocabulary = 67 if tiny else 32000
        config = LlamaConfig(**sizes, vocab_size=vocabulary, max_position_embeddings=1024)
        with torch.device(DEVICE):
            dtype = torch.float32 if tiny else torch.bfloat16
            model: Any = LlamaForCausalLM._from_config(config, dtype=dtype).eval()
        packed = PackedModel(model, "target")
        for tokens in (1, 5, 16, 64, 80):
            engine, tree = PackedPasses(packed), TokenTree([i % 60 for i in range(300)])
            engine.admit(tree, 400)
            engine.run([(tree, tree.trunk[-1:])])

            def run(engine: Any = engine, tree: Any = tree, tokens: int = tokens) -> None:
                tree.keep([tree.trunk[299]])
                nodes = [tree.trunk[299]]
                for token in range(tokens):
                    nodes.append(tree.add(nodes[-1], token % 60))
                engine.run([(tree, nodes[1:])])

            seconds, floor = seconds_of(run), packed.weight_bytes / speed
            share = f"{floor / seconds:.0%} of the floor"
            yield f"{name}, {tokens} tokens: {1e3 * seconds:.3f} ms, {share}"


def greedy(tiny: bool) -> Iterator[str]:
    """Greedy decoding beside `generate`, a captured forward with a static cache, and assistance."""
    pair, count = pair_of(tiny), 16 if tiny else 128
    (prompt,), speed = prompts_of(pair, 1), rate(tiny)
    ids = torch.tensor([prompt], device=DEVICE)
    ours: dict[str, Any] = {"max_new_tokens": count, "ignore_eos": True, "temperature": 0}
    options = {
        "attention_mask": torch.ones_like(ids), "max_new_tokens": count, "do_sample": False,
        "eos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    ways = {
        "decoders": lambda: generate(pair, prompt, "greedy", **ours),
        "generate": lambda: pair.target.generate(ids, **options),
        "assisted": lambda: pair.target.generate(ids, assistant_model=pair.draft, **options),
    }
    for name, run in ways.items():
        seconds = seconds_of(run, 2, 1)
        share = count * pair.packed["target"].weight_bytes / speed / seconds
        yield f"{name}: {count / seconds:.1f} tokens/s, {share:.0%} of the floor"
    seconds = captured(pair.target, len(prompt) + count)
    yield f"captured forward, without a draw: {1 / seconds:.1f} tokens/s"


@torch.inference_mode()
def captured(model: Any, rows: int) -> float:
    """Seconds of a step of transformers' forward with a static cache, as one graph on a GPU."""
    cache = StaticCache(config=model.config, max_cache_len=rows)
    token = torch.zeros(1, 1, dtype=torch.long, device=DEVICE)
    place = torch.full((1, 1), rows - 1, device=DEVICE)

    def step() -> None:
        model(input_ids=token, position_ids=place, past_key_values=cache, use_cache=True)

    step()
    if DEVICE.type != "cuda":
        cache.reset()
        return seconds_of(step, 1, 0)
    cache.reset()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return seconds_of(graph.replay, 20)


LAWS: dict[str, dict[str, float]] = {
    "T=0": {"temperature": 0.0},
    "T=1": {"temperature": 1.0},
    "T=1, top-k 10, top-p 0.8": {"temperature": 1.0, "top_k": 10, "top_p": 0.8},
}
NAMED = "greedy", "multinomial", "speculative", "mtad", "dsbd", "beam_sampling", "specinfer"


def decoders(tiny: bool) -> Iterator[str]:
    """Tokens a second of each decoder on an 8B's shape, alone."""
    pair, count = pair_of(tiny), 12 if tiny else 64
    for law, options in LAWS.items():
        for name in NAMED if not tiny else NAMED[:4]:
            (prompt,) = prompts_of(pair, 1)
            given: dict[str, Any] = {"max_new_tokens": count, "ignore_eos": True, **options}
            seconds = seconds_of(lambda: generate(pair, prompt, name, **given), 2, 1)  # noqa: B023
            result = generate(pair, prompt, name, **given)
            each = count / result.metrics.target_calls
            yield (
                f"{law}, {name}: {count / seconds:.1f} tokens/s, {each:.2f} a target pass, "
                f"perplexity {result.metrics.perplexity:.2f}"
            )


def batches(tiny: bool) -> Iterator[str]:
    """Batches of one to 32 requests, unpadded and padded."""
    pair, count = pair_of(tiny), 8 if tiny else 48
    for requests in (1, 4) if tiny else (1, 8, 16, 32):
        prompts = prompts_of(pair, requests)
        for name, padding in (("greedy", "none"), ("speculative", "none"), ("speculative", "both")):
            given: dict[str, Any] = {
                "max_new_tokens": count, "ignore_eos": True, "temperature": 0, "padding": padding,
            }  # fmt: skip
            seconds = seconds_of(lambda: generate(pair, prompts, name, **given), 1, 1)  # noqa: B023
            speed = f"{requests * count / seconds:.0f} tokens/s"
            yield f"{requests} requests, {name}, padding {padding}: {speed}"


def energy(tiny: bool) -> Iterator[str]:
    """Joules a token by decoder, without those of the prompt."""
    pair, meter = pair_of(tiny), open_meter(DEVICE)
    counts = (4, 12) if tiny else (8, 136)
    for name in NAMED[:5] if not tiny else NAMED[:2]:
        (prompt,), spent, why = prompts_of(pair, 1), [], ""
        for count in (counts[0], *counts):
            with meter.window() as window:
                generate(pair, prompt, name, max_new_tokens=count, ignore_eos=True, temperature=0)
            spent.append(window.energy.joules)
            why = window.energy.source
        if None in spent:
            yield f"{name}: {why}"
        else:
            each = (spent[2] - spent[1]) / (counts[1] - counts[0])
            yield f"{name}: {each:.3f} J a token ({why}); an 8B's energy, the small model's text"


SECTIONS: dict[str, Callable[[bool], Iterator[str]]] = {
    section.__name__: section
    for section in (costs, right, passes, greedy, decoders, batches, energy)
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("section", nargs="?", choices=SECTIONS)
    parser.add_argument("--tiny", action="store_true", help="small models, also on a CPU")
    args = parser.parse_args()
    if DEVICE.type != "cuda" and not args.tiny:
        print("There is no CUDA device here; --tiny runs every section on the CPU.")
        return 2
    if args.section:
        for line in SECTIONS[args.section](args.tiny):
            print(f"  {line}", flush=True)
        return 0
    began, rows = time.perf_counter(), []
    for name, section in SECTIONS.items():
        print(f"{name}: {' '.join(str(section.__doc__).split())}", flush=True)
        command = [sys.executable, "-m", "tests.speed.gpu", name, *["--tiny"] * args.tiny]
        start = time.perf_counter()
        limit = TINY if args.tiny else LIMITS[name]
        try:
            code: int | str = subprocess.run(command, timeout=limit).returncode
        except subprocess.TimeoutExpired:
            code = f"no end after {limit} s"
        if code != 0:
            print(f"  FAILED ({code})", flush=True)
        rows.append((name, f"{time.perf_counter() - start:.0f}", code == 0, AIMS.get(name, "")))
    table(("section", "s", "ran", "aim"), rows)
    print(f"\n{time.perf_counter() - began:.0f} s in all")
    return 0 if all(well for _, _, well, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
