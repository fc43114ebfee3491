"""The embedded pair at its tuned settings: over our baselines, `generate`, and theory.

    python -m tests.speed.claims [--threads 1] [--tokens 64] [--prompts 6] [--rounds 5]
                                 [--lengths 2 3 4 5 6 8]

T=0, and T=1 with top-k 20 and top-p 0.9. Runs that are compared are interleaved. Every decoder is
set beside greedy `generate`, which is quicker than its sampling, and beside our own baseline:
greedy decoding at T=0, sampling at T=1, and beam sampling of as many beams for DSBD. Settings are
those kept with the pair (`tools.tune`), unless a row names others. Prints Markdown; a ratio is the
median of the rounds' ratios with the least and the most. Ten minutes on one thread. Padded and
unpadded batches (EMS-SD) have another script, each number of threads a process:

    WORKBENCH_THREADS=1 python -m tests.speed.batch --only lookup --sizes 8 16 --tokens 48
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable, Sequence

import torch

import decoders
from decoders.theory import expected_tokens
from tests.speed.dsbd import perplexity
from tests.speed.engine import interleaved, times_as_fast
from tests.speed.lookup import EXACTLY_4, prompts, theirs
from workbench.models.presets import pair_settings, tuned

WARPINGS = {
    "T=0": {"temperature": 0.0},
    "T=1, top-k 20, top-p 0.9": {"temperature": 1.0, "top_k": 20, "top_p": 0.9},
}
DRAFTING = ("speculative", "block", "mtad", "spectr", "specinfer", "mcss", "typical")
WIDTHS = (4, 2)  # of the beam sampling that each of DSBD's settings was chosen beside
Runs = dict[str, Callable[[], list]]


def over(
    pair: decoders.ModelPair, method: decoders.Method, texts: Sequence[str], options: dict
) -> Callable[[], list]:
    """A run of our decoder over all texts; what it returns is kept in `found`."""

    def run() -> list[decoders.Result]:
        run.found = [
            decoders.generate(pair, text, method, ignore_eos=True, **options) for text in texts
        ]
        return run.found

    return run


def steady(results: Sequence[decoders.Result]) -> list[decoders.Round]:
    """Their rounds without the first of each, which read the prompt."""
    return [entry for result in results for entry in result.rounds[1:]]


def seconds_per_token(rounds: Sequence[decoders.Round]) -> float:
    return sum(r.draft_seconds + r.verify_seconds for r in rounds) / sum(
        len(r.tokens) for r in rounds
    )


def beside_theory(
    greedy: Sequence[decoders.Result], drafted: Sequence[decoders.Result], length: int
) -> list[str]:
    """alpha, c, the cost of verifying, and the speed-up over greedy, promised and measured.

    The promise is that of theorem 3.8."""
    rounds, plain = steady(drafted), seconds_per_token(steady(greedy))
    alpha = sum(r.accepted for r in rounds) / sum(r.tested for r in rounds)
    c = sum(r.draft_seconds for r in rounds) / sum(r.draft_calls for r in rounds) / plain
    verify = sum(r.verify_seconds for r in rounds) / len(rounds) / plain
    theory, measured = (
        expected_tokens(alpha, length) / (length * c + verify),
        plain / seconds_per_token(rounds),
    )
    return [f"{x:.3f}" for x in (alpha, c, verify, theory, measured, measured / theory)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2, 3, 4, 5, 6, 8])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    pair, texts = decoders.load_pair(), prompts()
    openings, refrains = (texts[kind][: args.prompts] for kind in ("openings", "refrains"))
    print(
        f"{args.tokens} tokens, {args.prompts} prompts, {args.rounds} rounds, {args.threads} "
        f"threads; load average {os.getloadavg()[0]:.1f} before; "
        f"settings {json.dumps(pair_settings())}"
    )
    for title, warping in WARPINGS.items():
        options = {**warping, "max_new_tokens": args.tokens}

        def ours(name: str, on=openings, options=options, **settings) -> Callable[[], list]:
            return over(pair, decoders.catalog[name](**settings), on, options)

        def generated(on=openings, **settings) -> Callable[[], list]:
            def run() -> list:
                pair.draft.generation_config.update(**EXACTLY_4)
                return [theirs(pair, text, args.tokens, settings) for text in on]

            return run

        cold = not warping["temperature"]
        own = {name: ours(name, **tuned().get(name, {})) for name in DRAFTING}
        bases = dict.fromkeys(own, "greedy" if cold else "sampling")
        drafting = {
            f"speculative, {n} draft tokens": ours("speculative", draft_length=n)
            for n in args.lengths
        }
        bases |= dict.fromkeys(drafting, "greedy" if cold else "sampling")
        runs: Runs = {
            "generate": generated(),
            "greedy": ours("greedy"),
            **own,
            **drafting,
        }
        if not cold:
            runs["sampling"] = ours("multinomial")
            for width, settings in zip(WIDTHS, pair_settings().get("dsbd", []), strict=False):
                runs[f"beam sampling of {width}"] = ours("beam_sampling", beams=width)
                runs[f"dsbd beside {width}"] = ours("dsbd", **settings)
                bases[f"dsbd beside {width}"] = f"beam sampling of {width}"
        if cold:
            runs |= {"generate, assisted": generated(assistant_model=True)}
            runs |= {
                "generate, copying": generated(refrains, prompt_lookup_num_tokens=10),
                "lookup": ours("lookup", refrains, copy=10),
            }
        took = interleaved(runs, args.rounds)
        print(
            f"\n### {title}\n\n| | tokens/s | over `generate` | over our own | perplexity |\n"
            "|---|--:|--:|--:|--:|"
        )
        for name, seconds in took.items():
            base, found = bases.get(name), getattr(runs[name], "found", None)
            print(
                f"| {name} | {args.prompts * args.tokens / statistics.median(seconds):.0f} | "
                f"{times_as_fast(took, name, 'generate')} | "
                f"{f'{times_as_fast(took, name, base)} {base}' if base else ''} | "
                f"{f'{perplexity(found):.2f}' if found else ''} |"
            )
        best = min(drafting, key=lambda name: statistics.median(took[name]))
        print(f"\nBest draft length: {best}.")
        if cold:
            print(
                f"Over assisted `generate`: {times_as_fast(took, best, 'generate, assisted')}; "
                "look-up over `generate` copying: "
                f"{times_as_fast(took, 'lookup', 'generate, copying')}."
            )
        print(
            "\n| draft tokens | alpha | c | verifying, in greedy steps | speed-up by theory | "
            "measured | measured / theory |\n|--:|--:|--:|--:|--:|--:|--:|"
        )
        for n, name in zip(args.lengths, drafting, strict=True):
            print(
                f"| {n} | {' | '.join(beside_theory(runs['greedy'].found, runs[name].found, n))} |",
                flush=True,
            )
    print(f"\nload average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
