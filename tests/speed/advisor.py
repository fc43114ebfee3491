"""The advisor's predictions beside speculative decoding at 1 to 8 draft tokens a round.

    python -m tests.speed.advisor                # T=0 and T=1, 20 prompts, about two minutes
    python -m tests.speed.advisor --prompts 5 --rounds 1

It predicts from alpha and costs. Each round is a whole piece of advice; a draft length's error is
that of the medians over the rounds. Exit status 1 if one is above 15%."""

import argparse
import sys
from statistics import fmean, median

import torch

import decoders
from workbench.kinds.advice import OTHERS, Advice, Findings, findings, table
from workbench.measuring import session
from workbench.show.tables import markdown

MOST = 0.15


def advice(
    pair: decoders.ModelPair, temperature: float, count: int, tokens: int, others: tuple[str, ...]
) -> Findings:
    asked = {"decoders": list(others), "temperature": temperature, "max_new_tokens": tokens}
    study = Advice.from_json(
        {
            "prompts": {"name": "stories", "count": count},
            "settings": {**Advice.usual, **asked, "measure_all": True},
        }
    )
    *_, ended = session.run(pair, study)
    found = findings(ended.run)
    assert found is not None
    return found


def errors(rounds: list[Findings]) -> dict[int, tuple[float, float, float]]:
    """For each draft length the median prediction, the median measurement, and their difference."""
    found: dict[int, list[tuple[float, float]]] = {}
    for one in rounds:
        for line in one.lines:
            if line.predicted is not None and line.measured is not None:
                found.setdefault(line.method.draft_length, []).append(
                    (line.predicted.value, line.measured.value)
                )
    both = {
        n: [median(values) for values in zip(*pairs, strict=True)]
        for n, pairs in sorted(found.items())
    }
    return {
        n: (predicted, measured, predicted / measured - 1)
        for n, (predicted, measured) in both.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args, pair, worst = parser.parse_args(), decoders.load_pair(), 0.0
    print(
        f"{args.prompts} prompts, {args.tokens} new tokens, {args.rounds} rounds, "
        f"{torch.get_num_threads()} threads"
    )
    for temperature in (0.0, 1.0):
        # What theory does not cover is measured once: it has nothing to be compared with.
        rounds = [
            advice(pair, temperature, args.prompts, args.tokens, ("greedy",) if i else OTHERS)
            for i in range(args.rounds)
        ]
        alpha, c = fmean(r.alpha for r in rounds), median(r.c for r in rounds)
        print(f"\n## T={temperature:g}: alpha {alpha:.3f}, c {c:.3f}\n")
        print(
            "| draft tokens | predicted x greedy | measured x greedy | error |\n|---|---|---|---|"
        )
        for length, (predicted, measured, error) in errors(rounds).items():
            print(f"| {length} | {predicted:.2f} | {measured:.2f} | {error:+.1%} |", flush=True)
            worst = max(worst, abs(error))
        print(f"\n{markdown(table(rounds[0]))}", flush=True)
    print(f"\nThe largest error is {worst:.1%}; at most {MOST:.0%} is wanted.")
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
