"""The engine's speed on a random Llama of 28M parameters.

Against `transformers`, in batches, and against the memory bus.

    python -m tests.speed.engine [--dtypes float32 bfloat16] [--prompt 64] [--tokens 64]
                                 [--rounds 5]

All that is compared runs interleaved in one process; a figure is the median over rounds, a ratio
the median of the rounds' ratios with the least and the most. Prints Markdown.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import decoders
from decoders.request import Request

VOCABULARY = 4096
BEAMS = 4
Seconds = dict[str, list[float]]
# Greedy and beams over transformers, and greedy's share of the bandwidth floor.
AIMS = {torch.float32: ("", "", "52%"), torch.bfloat16: ("1.4", "1.7", "33%")}


def model(dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1408, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=2048,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(dtype).eval()


def interleaved(runs: dict[str, Callable[[], object]], rounds: int) -> Seconds:
    """Seconds of each run in each round after one to warm up; every other round is reversed."""
    took: Seconds = {name: [] for name in runs}
    for i in range(rounds + 1):
        for name in list(runs)[:: -1 if i % 2 else 1]:
            began = time.perf_counter()
            runs[name]()
            if i:
                took[name].append(time.perf_counter() - began)
    return took


def times_as_fast(took: Seconds, name: str, other: str, work: float = 1.0) -> str:
    """The speed of `name` over that of `other`, if it does `work` times as much."""
    ratios = [work * b / a for a, b in zip(took[name], took[other], strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def bandwidth(rounds: int) -> float:
    """Bytes a second that a sum over 256 MiB reads."""
    data = torch.ones(2**26)
    return data.nbytes / statistics.median(interleaved({"sum": data.sum}, rounds)["sum"])


def outside_forward(pair: decoders.ModelPair, run: Callable[[], decoders.Result]) -> float:
    """Milliseconds a pass that are not spent in the model's forward: packing, sampling, rules,
    trace."""
    packed, inside = pair.packed["target"], []
    forward = packed.forward

    def timed(**inputs):
        began = time.perf_counter()
        output = forward(**inputs)
        inside.append(time.perf_counter() - began)
        return output

    with mock.patch.object(packed, "forward", timed):
        began = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - began - sum(inside)) / len(inside)


def without_annotations(run: Callable[[], object]) -> Callable[[], object]:
    """The run without the trace's log-probabilities and alternatives; trials are still noted."""

    def annotate(request, entry, readings):
        for trial in entry.trials:
            trial.log_p = 0.0
            request.kept[trial.node] = trial

    def stubbed():
        with mock.patch.object(Request, "annotate", annotate):
            run()

    return stubbed


def report(dtype: torch.dtype, prompt: int, tokens: int, rounds: int) -> list[tuple[str, str, str]]:
    """(what, figure, aim) lines for one dtype."""
    llama = model(dtype)
    pair = decoders.ModelPair(llama, llama)
    generator = torch.Generator().manual_seed(0)
    prompts = [
        torch.randint(VOCABULARY, (prompt // 2 + 8 * i,), generator=generator).tolist()
        for i in range(8)
    ]
    text = torch.randint(VOCABULARY, (prompt,), generator=generator).tolist()
    ids = torch.tensor([text])

    def ours(name: str, prompts=text, pair=pair, **settings):
        method = decoders.catalog[name](**settings)
        return lambda: decoders.generate(
            pair, prompts, method, max_new_tokens=tokens, ignore_eos=True
        )

    def theirs(**options):
        options |= {
            "max_new_tokens": tokens,
            "do_sample": False,
            "eos_token_id": None,
            "pad_token_id": 0,
        }
        return lambda: llama.generate(ids, attention_mask=torch.ones_like(ids), **options)

    plain = decoders.ModelPair(llama, None, passes="plain")
    runs = {
        "greedy, plain": ours("greedy", pair=plain),
        "greedy": ours("greedy"), "greedy, transformers": theirs(),
        "beams": ours("beam_search", beams=BEAMS), "beams, transformers": theirs(num_beams=BEAMS),
        "batch of 8": ours("greedy", prompts), "no trace": without_annotations(ours("greedy")),
    }  # fmt: skip
    took = interleaved(runs, rounds)
    speed = {
        name: (8 if "batch" in name else 1) * tokens / statistics.median(times)
        for name, times in took.items()
    }
    lines = [(f"{name}, tokens/s", f"{value:.1f}", "") for name, value in speed.items()]
    lines += [
        ("greedy, program over plain", times_as_fast(took, "greedy", "greedy, plain"), ""),
        (
            "greedy over transformers",
            times_as_fast(took, "greedy", "greedy, transformers"),
            AIMS[dtype][0],
        ),
        (
            f"beam search, W={BEAMS}, over transformers",
            times_as_fast(took, "beams", "beams, transformers"),
            AIMS[dtype][1],
        ),
        ("batch of 8 over one", times_as_fast(took, "batch of 8", "greedy", 8), "4"),
        ("greedy with its trace over without", times_as_fast(took, "greedy", "no trace"), "0.95"),
    ]

    bus = bandwidth(rounds)
    for name in ("greedy", "greedy, plain"):
        floor = runs[name]().metrics.bytes_read / bus
        share = floor / statistics.median(took[name])
        aim = AIMS[dtype][2] if name == "greedy" else ""
        lines.append(
            (f"{name}: share of the bandwidth floor ({bus / 1e9:.1f} GB/s)", f"{share:.0%}", aim)
        )
    for name, aim in (("greedy", "0.25"), ("beams", "0.4")):
        spent = statistics.median(outside_forward(pair, runs[name]) for _ in range(rounds))
        lines.append((f"{name}: ms a pass outside the model", f"{spent:.2f}", aim))

    exact = decoders.catalog["speculative"](draft_length=4)
    calls = decoders.generate(
        pair, text, exact, max_new_tokens=65, ignore_eos=True
    ).metrics.target_calls
    lines.append(
        ("target calls for 65 tokens, the draft being the target, gamma 4", str(calls), "13")
    )
    searched = decoders.generate(
        pair, text, decoders.catalog["beam_search"](beams=BEAMS), max_new_tokens=64, ignore_eos=True
    )
    live, copies = live_nodes(searched, prompt), BEAMS * (prompt + 64)
    rows = f"{searched.metrics.peak_cache_rows} (live nodes {live}; W copies would hold {copies})"
    lines.append(("peak cache rows, beam search, 64 tokens", rows, f"{2 * live}"))
    return lines


def live_nodes(searched: decoders.Result, prompt: int) -> int:
    """The largest number of live nodes: the prompt, and all ancestors of a round's tips."""
    parents = {t.node: t.parent for entry in searched.rounds for t in entry.trials}
    most = 0
    for entry in searched.rounds:
        alive = {t.node for t in entry.trials}
        for node in list(alive):
            while (node := parents.get(node)) is not None and node not in alive and node >= prompt:
                alive.add(node)
        most = max(most, prompt + len(alive))
    return most


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print(
        (
            f"{args.prompt} prompt and {args.tokens} new tokens, {args.rounds} rounds, "
            f"{torch.get_num_threads()} threads"
        ),
        end="",
    )
    print(f"; load average {os.getloadavg()[0]:.1f} before")
    for name in args.dtypes:
        lines = report(getattr(torch, name), args.prompt, args.tokens, args.rounds)
        print(f"\n| {name} | figure: median (least to most) | aim |\n|---|---|---|")
        print(
            "\n".join(f"| {what} | {figure} | {aim} |" for what, figure, aim in lines), flush=True
        )
    print(f"\nload average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
