"""Prompt lookup and speculative decoding against `transformers`' own.

    python -m tests.speed.lookup [--pair FOLDER] [--tokens 64] [--prompts 8] [--rounds 5]

Greedy, in one process; figures are medians of interleaved runs. A ratio above 1 says that this
package is faster. Prompt lookup decodes prompts that repeat themselves, the others story
openings."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import decoders

ASSETS = Path(__file__).parents[2] / "assets"
EXACTLY_4 = {
    "num_assistant_tokens": 4,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.0,
}
UNTIL_UNSURE = {
    "num_assistant_tokens": 20,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.4,
}
# What is compared: a decoder here and its settings, the options of `generate` there, the settings
# of its assistant, and the prompts.
CONTESTS = {
    "greedy": ("greedy", {}, {}, {}, "openings"),
    "prompt lookup, 10 tokens": (
        "lookup",
        {"copy": 10},
        {"prompt_lookup_num_tokens": 10},
        {},
        "refrains",
    ),
    "draft model, 4 tokens": (
        "speculative",
        {"draft_length": 4},
        {"assistant_model": True},
        EXACTLY_4,
        "openings",
    ),
    "draft model, up to 20 while above 0.4": (
        "speculative",
        {"draft_length": 20, "confidence": 0.4},
        {"assistant_model": True},
        UNTIL_UNSURE,
        "openings",
    ),
    "draft model, length chosen as it goes": (
        "speculative",
        {"draft_length": "auto"},
        {"assistant_model": True},
        UNTIL_UNSURE,
        "openings",
    ),
}


def prompts() -> dict[str, list[str]]:
    lines = (ASSETS / "batch" / "refrains.jsonl").read_text().splitlines()
    openings = json.loads((ASSETS / "stories" / "prompts.json").read_text())["openings"]
    return {"refrains": [json.loads(line)["prompt"] for line in lines], "openings": openings}


def theirs(
    pair: decoders.ModelPair, prompt: str, tokens: int, options: dict[str, Any]
) -> list[int]:
    """The new tokens of `transformers`' greedy generate."""
    inputs = pair.tokenizer(prompt, return_tensors="pt").to(pair.target.device)
    if "assistant_model" in options:
        options = {**options, "assistant_model": pair.draft}
    with torch.inference_mode():
        out = pair.target.generate(
            inputs.input_ids, attention_mask=torch.ones_like(inputs.input_ids), do_sample=False,
            eos_token_id=None, max_new_tokens=tokens, **options,
        )  # fmt: skip
    return out[0, inputs.input_ids.shape[1] :].tolist()


def timed(run: Callable[[], list[int]]) -> tuple[list[int], float]:
    start = time.perf_counter()
    tokens = run()
    return tokens, time.perf_counter() - start


def contest(
    pair: decoders.ModelPair, name: str, texts: list[str], tokens: int, rounds: int
) -> tuple[list[float], list[float], int]:
    """For each prompt the median of their seconds over ours, and the median of ours.

    Also the number of prompts on which both agree."""
    decoder, settings, options, assistant, _ = CONTESTS[name]
    method = decoders.catalog[decoder](**settings)
    if pair.draft is not None:
        pair.draft.generation_config.update(**assistant)
    ratios, seconds, same = [], [], 0
    for text in texts:
        runs: dict[str, Callable[[], list[int]]] = {
            "ours": lambda text=text: (
                decoders.generate(
                    pair, text, method, max_new_tokens=tokens, temperature=0.0, ignore_eos=True
                ).tokens
            ),
            "theirs": lambda text=text: theirs(pair, text, tokens, options),
        }
        outputs = {who: run() for who, run in runs.items()}  # warms up, too
        same += outputs["ours"] == outputs["theirs"]
        took: dict[str, list[float]] = {"ours": [], "theirs": []}
        for i in range(rounds):
            for who in list(runs)[:: 1 if i % 2 else -1]:
                took[who].append(timed(runs[who])[1])
        ratios.append(
            statistics.median(b / a for a, b in zip(took["ours"], took["theirs"], strict=True))
        )
        seconds.append(statistics.median(took["ours"]))
    return ratios, seconds, same


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", help="folder with target/ and draft/; default: the embedded pair")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=8, help="of each kind")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    pair, texts = decoders.load_pair(args.pair), prompts()
    print(
        f"{args.tokens} new tokens, {args.prompts} prompts, {args.rounds} interleaved runs, "
        f"{torch.get_num_threads()} threads"
    )
    print(
        "\n| against transformers | times as fast: median (least to most) | ours, tokens/s | same "
        "tokens |\n|---|---|---|---|"
    )
    for name, (*_, kind) in CONTESTS.items():
        ratios, seconds, same = contest(
            pair, name, texts[kind][: args.prompts], args.tokens, args.rounds
        )
        speed = args.tokens / statistics.median(seconds)
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {name} | {spread} | {speed:.0f} | {same} of {len(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
