"""DSBD beside beam sampling at equal perplexity: both curves, and DSBD's speed-up at each width.

    python -m tests.speed.dsbd [--threads 1] [--tokens 48] [--searched 6] [--held-out 8]
                               [--rounds 3]

DSBD's widths and thresholds are searched on some prompts, and measured on others beside beam
sampling of 1 to 8 beams. T=1, top-k 20, top-p 0.9. At each width of beam sampling, the fastest
setting is taken whose perplexity was not higher; on the prompts that are measured it may be either,
so both perplexities are shown. Prints Markdown; about four minutes on one thread.

Source:
    Qin et al. 2024, Dynamic-width speculative beam decoding (arXiv 2409.16560), section 4.2
"""

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Sequence

import torch

import decoders
from decoders.result import perplexity as of_tokens
from tests.speed.engine import interleaved, times_as_fast
from tests.speed.lookup import prompts

WIDTHS = (1, 2, 3, 4, 6, 8)
GRID = {
    "draft_length": (1, 2, 3),
    "draft_beams": (2, 4, 6, 8),
    "width_threshold": (0.5, 0.7, 0.9),
    "min_beams": (1, 2, 3, 4),
}


def perplexity(results: Sequence[decoders.Result]) -> float:
    """Of all their tokens under the target, unwarped."""
    return of_tokens(trial.log_p for result in results for trial in result.trials)


def over(
    pair: decoders.ModelPair, method: decoders.Method, texts: Sequence[str], tokens: int
) -> Callable[[], list]:
    options = {
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.9,
        "ignore_eos": True,
        "max_new_tokens": tokens,
    }
    return lambda: [
        decoders.generate(pair, text, method, seed=i, **options) for i, text in enumerate(texts)
    ]


def searched(
    pair: decoders.ModelPair, texts: Sequence[str], tokens: int
) -> list[tuple[float, float, decoders.Method]]:
    """(seconds, perplexity, method) of every setting of the grid, each run once."""
    found = []
    for values in itertools.product(*GRID.values()):
        settings = dict(zip(GRID, values, strict=True))
        if settings["min_beams"] > settings["draft_beams"]:
            continue
        method = decoders.catalog["dsbd"](**settings)
        began = time.perf_counter()
        results = over(pair, method, texts, tokens)()
        found.append((time.perf_counter() - began, perplexity(results), method))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--searched", type=int, default=6)
    parser.add_argument("--held-out", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pair, texts = decoders.load_pair(), prompts()["openings"]
    first, others = texts[: args.searched], texts[args.searched : args.searched + args.held_out]
    print(
        f"{args.tokens} tokens, {len(first)} prompts searched, {len(others)} measured, "
        f"{args.rounds} rounds, {args.threads} threads; "
        f"load average {os.getloadavg()[0]:.1f} before"
    )
    settings = searched(pair, first, args.tokens)
    sampling = {width: decoders.catalog["beam_sampling"](beams=width) for width in WIDTHS}
    runs, chosen = {}, {}
    for width, method in sampling.items():
        most = perplexity(over(pair, method, first, args.tokens)())
        good = [found for found in settings if found[1] <= most]
        chosen[width] = min(good, key=lambda found: found[0])[2] if good else None
        runs[f"beam sampling, {width}"] = over(pair, method, others, args.tokens)
        if good:
            runs[f"dsbd as {width}"] = over(pair, chosen[width], others, args.tokens)
    found = {name: perplexity(run()) for name, run in runs.items()}
    took = interleaved(runs, args.rounds)
    print(
        "\n| beams | beam sampling: perplexity, tokens/s | DSBD (length, draft beams, threshold, "
        "least) | its perplexity, tokens/s | times as fast |"
    )
    print("|--:|--:|---|--:|--:|")
    count = args.tokens * len(others)
    for width, method in chosen.items():
        plain = f"beam sampling, {width}"
        cells = [
            f"{found[plain]:.2f}, {count / statistics.median(took[plain]):.0f}",
            "none was as likely",
            "",
            "",
        ]
        if method is not None:
            name, at = f"dsbd as {width}", ", ".join(str(getattr(method, key)) for key in GRID)
            cells[1:] = [
                at,
                f"{found[name]:.2f}, {count / statistics.median(took[name]):.0f}",
                times_as_fast(took, name, plain),
            ]
        print(f"| {width} | {' | '.join(cells)} |", flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
