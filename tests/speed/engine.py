"""The engine beside `transformers`, the memory bus and an older checkout; a pass, and what is not.

    python -m tests.speed.engine [--only llama passes outside host texts] [--rounds 5] [--threads 1]

*llama*: a random Llama of 28M parameters beside transformers' `generate`, alone, by beams and in a
batch (`--dtypes float32 bfloat16 --prompt 64 --tokens 64`). *passes*: passes of the pair, plain and
as a program, by their number of tokens (`--pair smollm2 --past 500`). *outside*: wall time without
calls of kernels, by token and by round, of texts of twice 64 tokens at temperature 0; a whole call
of `generate` counts, and what each further token or round takes is told from texts of twice the
length. *host*: processor time of a round on a GPU whose launches return at once, for which a CPU
stands; *texts*: tokens/s of the pair and of a `--pair`. With `--beside ../old` both are set beside
that checkout (00d05b0 or later), in a process of its own that takes turns. Prints Markdown: medians
of interleaved rounds with the least and the most; of *host* the least.
"""

import argparse
import inspect
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from decoders import Method, ModelPair, catalog, generate, load_pair
from decoders.engine.kernels.loading import kernels
from decoders.engine.passes import PackedPasses
from decoders.tree import TokenTree
from tests.speed.measure import WARPINGS, measure, options, prompts, ratio, spread, table

VOCABULARY, BEAMS, MOST = 4096, 4, 65
# Greedy and beams over transformers, and greedy's share of the bandwidth floor.
AIMS = {"float32": ("", "", "52%"), "bfloat16": ("1.4", "1.7", "33%")}


def llama(args: argparse.Namespace) -> None:
    for dtype in args.dtypes:
        table((dtype, "figure: median (least to most)", "aim"), beside(dtype, args))


def beside(dtype: str, args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """(what, figure, aim) rows of one dtype."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1408, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=2048,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    pair, plain = ModelPair(model, model), ModelPair(model, None, passes="plain")
    texts = [torch.randint(VOCABULARY, (args.prompt // 2 + 8 * i,)).tolist() for i in range(1, 9)]
    text = torch.randint(VOCABULARY, (args.prompt,)).tolist()
    ids = torch.tensor([text])

    def ours(name: str, prompts: Any = text, pair: ModelPair = pair, **settings: Any) -> Callable:
        given = {"max_new_tokens": args.tokens, "ignore_eos": True}
        return lambda: generate(pair, prompts, catalog[name](**settings), **given)

    def theirs(**more: Any) -> Callable:
        more |= {"max_new_tokens": args.tokens, "do_sample": False, "pad_token_id": 0}
        return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **more)

    cases = {
        "greedy": ours("greedy"), "greedy, plain": ours("greedy", pair=plain),
        "greedy, transformers": theirs(), "beams": ours("beam_search", beams=BEAMS),
        "beams, transformers": theirs(num_beams=BEAMS), "batch of 8": ours("greedy", texts),
    }  # fmt: skip
    took = measure(cases, args.rounds)
    for name, seconds in took.items():
        work = args.tokens * (8 if "batch" in name else 1)
        yield f"{name}, tokens/s", f"{work / statistics.median(seconds):.1f}", ""
    greedy, beams, floor = AIMS.get(dtype, ("", "", ""))
    yield "greedy, program over plain", ratio(took, "greedy", "greedy, plain"), ""
    yield "greedy over transformers", ratio(took, "greedy", "greedy, transformers"), greedy
    name = f"beam search, W={BEAMS}, over transformers"
    yield name, ratio(took, "beams", "beams, transformers"), beams
    yield "batch of 8 over one", ratio(took, "batch of 8", "greedy", 8), "4"
    data = torch.ones(2**26)
    bus = data.nbytes / statistics.median(measure({"sum": data.sum}, args.rounds)["sum"])
    least = cases["greedy"]().metrics.bytes_read / bus
    share = f"{least / statistics.median(took['greedy']):.0%}"
    yield f"greedy: share of the bandwidth floor ({bus / 1e9:.1f} GB/s)", share, floor


def a_pass(pair: ModelPair, role: str, tokens: int, past: int) -> Callable[[], object]:
    """The model's part of a pass of so many tokens with `past` rows before them."""
    packed = pair.packed[role]
    engine, tree = PackedPasses(packed), TokenTree([i % 100 + 5 for i in range(past)])
    engine.admit(tree, past + 2 * tokens)
    engine.run([(tree, tree.trunk[-1:])])
    nodes = [tree.trunk[-1]]
    for i in range(tokens):
        nodes.append(tree.add(nodes[-1], 7 + i))
    inputs = engine.pack(engine.feeds([(tree, nodes[1:])], None))
    return lambda: packed(inputs)


def passes(args: argparse.Namespace) -> None:
    ways = {way: load_pair(args.pair, passes=way) for way in ("program", "plain")}
    counts = [n for n in (*range(1, 7), 8, 9, 16, 17, 33, 64, 65) if n <= args.most]
    for role in ("target", "draft") if not args.pair else ("target",):
        cases = {
            f"{way} {n}": a_pass(ways[way], role, n, args.past) for way in ways for n in counts
        }
        took = {
            case: 1e3 * statistics.median(s) for case, s in measure(cases, 3 * args.rounds).items()
        }
        ours, plain = ({n: took[f"{way} {n}"] for n in counts} for way in ways)
        rows = ((n, f"{ours[n]:.3f}", f"{ours[n] / ours[1]:.2f}", f"{plain[n]:.3f}") for n in ours)
        table((f"{role}, tokens", "program ms", "over one", "plain ms"), rows)


def outside(args: argparse.Namespace) -> None:
    compiled, inside = kernels(), 0.0
    if compiled is None:
        print("\nThere are no kernels here, whose calls are timed.")
        return

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def within(*args: Any) -> Any:
            nonlocal inside
            began = time.perf_counter()
            answer = call(*args)
            inside += time.perf_counter() - began
            return answer

        return within

    for name in ("run", "passes"):
        setattr(compiled, name, timed(getattr(compiled, name)))
    pair, texts = load_pair(args.pair, device="cpu"), prompts()["openings"][:4]

    def spent(method: Method, tokens: int) -> tuple[float, float, int]:
        """Seconds of Python, seconds in all, and rounds, of all texts."""
        before, began, rounds = inside, time.perf_counter(), 0
        for text in texts:
            given = {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
            rounds += generate(pair, text, method, **given).metrics.target_calls
        whole = time.perf_counter() - began
        return whole - (inside - before), whole, rounds

    def rows() -> Iterator[tuple[str, ...]]:
        for length in (0, 2, 3, 4):
            method = catalog["speculative"](draft_length=length) if length else catalog["greedy"]()
            each, further, whole = [], [], []
            for i in range(args.rounds + 1):
                short, long = (spent(method, n * args.tokens) for n in (2, 4))
                if i:
                    each.append(1e3 * short[0] / short[2])
                    further.append(1e3 * (long[0] - short[0]) / max(1, long[2] - short[2]))
                    whole.append(1e3 * short[1] / short[2])
            name = f"a round of {length} draft tokens" if length else "a greedy token"
            yield name, spread(each, 3), spread(further, 3), f"{statistics.median(whole):.2f}"

    table(("", "ms of Python", "of each further one", "ms in all"), rows())


def answers(at_once: bool, pair_name: str | None) -> None:
    """Decode what each line of stdin says; print seconds, processor seconds, rounds and tokens.

    It runs in any checkout since 00d05b0, and so names what is there."""
    import json
    import sys
    import time
    from contextlib import nullcontext

    import torch

    import decoders
    from decoders import devices

    torch.set_num_threads(1)
    if at_once:
        try:
            from decoders.engine import graphs
            from decoders.engine.attention import interface as ways
            from decoders.engine.loading import admission
        except ImportError:
            from decoders.engine.memory import feeds

            from decoders.engine.attention import operator as ways
            from decoders.engine.loading import choice as admission
            from decoders.engine.passes import graphs

            feeds.needs_biases = ways.needs_biases = lambda device, dtype: False
            feeds.moved = lambda tensors, device: [tensor.clone() for tensor in tensors]
            graphs.check = lambda replayed, plain: None
        from decoders.engine.models.packed import PackedModel

        gpu = {
            "name": "stand-in", "free_bytes": None, "_modern": True, "pins": False,
            "default_dtype": torch.float32, "has_kernels": lambda self, dtype: True,
            "products": lambda self: "ieee", "current": lambda self: nullcontext(),
            "synchronize": lambda self: None,
        }  # fmt: skip
        devices.KINDS["cpu"] = type("Gpu", (devices.Cuda,), gpu)
        devices.device_of.cache_clear()
        ways.takes_kernels = lambda device, dtype: True
        admission.agrees_with_plain_pass = lambda model: None
        logits = 3 * torch.randn(64, 4096, generator=torch.Generator().manual_seed(0))
        PackedModel.plain = lambda self, wanted, **_: (logits[: len(wanted)].clone(),)
        graphs.Graphs.__init__.__defaults__ = (lambda run: (lambda: None, run()),)
    pair = decoders.load_pair(pair_name, device="cpu")
    for line in sys.stdin:
        name, settings, options, prompt = json.loads(line)
        method = decoders.catalog[name](**settings)
        began = time.perf_counter(), time.process_time()
        result = decoders.generate(pair, prompt, method, seed=1, ignore_eos=True, **options)
        took = time.perf_counter() - began[0], time.process_time() - began[1]
        print(json.dumps([*took, len(result.rounds), len(result.tokens)]), flush=True)
        del result  # not in the time of the next one


class Checkout:
    """A process in a checkout that decodes what it is asked to."""

    def __init__(self, place: str, at_once: bool, pair: str | None):
        code = f"{inspect.getsource(answers)}\nanswers({at_once}, {pair!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=place, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> "Checkout":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def __call__(self, case: tuple, tokens: int, prompt: str) -> list[float]:
        name, settings, options = case
        line = json.dumps([name, settings, {**options, "max_new_tokens": tokens}, prompt])
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def checkouts(stack: ExitStack, args: argparse.Namespace, *given: Any) -> list[Checkout]:
    places = [".", *([args.beside] if args.beside else [])]
    return [stack.enter_context(Checkout(place, *given)) for place in places]


COLD, HOT = ({"temperature": 0.0}, WARPINGS["T=1, top-k 20, top-p 0.9"])
DRAFT = {"draft_length": 4}
ROUNDS = {
    "greedy": ("greedy", {}, COLD), "sampling, cut": ("multinomial", {}, HOT),
    "speculative (4), T=0": ("speculative", DRAFT, COLD),
    "speculative (4), T=1": ("speculative", DRAFT, {}),
    "speculative (4), cut": ("speculative", DRAFT, HOT),
    "MTAD, T=1": ("mtad", {}, {}), "MTAD, cut": ("mtad", {}, HOT),
    "DSBD, T=1": ("dsbd", {}, {}), "DSBD, cut": ("dsbd", {}, HOT),
}  # fmt: skip


def host(args: argparse.Namespace) -> None:
    lengths, text = (24 + args.tokens, 24), prompts()["openings"][0]

    def rows(runs: list[Checkout]) -> Iterator[tuple[str, ...]]:
        for title, case in ROUNDS.items():
            turns = [
                [[run(case, n, text)[1:3] for n in lengths] for run in runs]
                for _ in range(args.rounds + 1)
            ][1:]
            each = []
            for many, few in (zip(*run, strict=True) for run in zip(*turns, strict=True)):
                seconds = min(s for s, _ in many) - min(s for s, _ in few)
                each.append(1e6 * seconds / (many[0][1] - few[0][1]))
            yield title, *(f"{us:.0f}" for us in each), f"{each[0] / each[-1]:.2f}"

    with ExitStack() as stack:
        runs = checkouts(stack, args, True, None)
        table(("us a round", *("now", "before")[: len(runs)], "ratio"), rows(runs))


SPEEDS = {
    "greedy": ("greedy", {}, COLD), "sampling, cut": ("multinomial", {}, HOT),
    "speculative (3), T=0": ("speculative", {"draft_length": 3}, COLD),
    "speculative (3), cut": ("speculative", {"draft_length": 3}, HOT),
    "look-up, T=0": ("lookup", {}, COLD),
}  # fmt: skip


def texts(args: argparse.Namespace) -> None:
    def rows(runs: list[Checkout]) -> Iterator[tuple[str, ...]]:
        for title, case in SPEEDS.items():
            rates = []
            for _ in range(args.rounds + 1):
                took = [run(case, args.tokens, prompts()["openings"][0]) for run in runs]
                rates.append([tokens / seconds for seconds, *_, tokens in took])
            speeds = (f"{statistics.median(each):.0f}" for each in zip(*rates[1:], strict=True))
            yield title, *speeds, spread([each[0] / each[-1] for each in rates[1:]])

    with ExitStack() as stack:
        runs = checkouts(stack, args, False, args.pair)
        table(("tokens/s", *("now", "before")[: len(runs)], "now over before"), rows(runs))


SECTIONS = {section.__name__: section for section in (llama, passes, outside, host, texts)}

if __name__ == "__main__":
    args = options(
        __doc__, {"rounds": 1, "tokens": 4, "prompt": 16, "dtypes": ["float32"], "most": 2},
        SECTIONS, rounds=5, tokens=64, prompt=64, dtypes=list(AIMS), pair=None, past=100, most=MOST,
        beside=None,
    )  # fmt: skip
    for name in args.only:
        SECTIONS[name](args)
