"""The verdict on draws, simulated without a model: wrong verdicts, and draws to find a fault.

    python -m tests.speed.verdicts [--sets 2000] [--times 1000] [--decoders 5]

The first table takes this number of sets of seeds for a true law, which is looked at after every
hundred draws up to 4,000, and counts those after which any decoder was ever called unlike. The
second one draws as many as the page asks for from laws that are off by a total variation of 0.1,
each law in several directions. Prints Markdown."""

import argparse

from tests.workbench.runs.simulated import directions, ever_unlike, found_share, laws
from workbench.runs.draws import needed

CELLS = (2, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("sets", 2000), ("times", 1000), ("decoders", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    print("| cells | seeds | sets of seeds | ever called unlike |\n|---|---|---|---|")
    for cells in CELLS:
        for shared in (True, False):
            every = laws(cells, 2, 7)
            wrong = sum(
                ever_unlike(every[seed % 2], args.decoders, shared, seed)
                for seed in range(args.sets)
            )
            print(
                f"| {cells} | {'shared' if shared else 'own'} | {args.sets} | {wrong} |", flush=True
            )
    print(
        "\n| cells | decoders | draws | directions | found, the worst | found, on average |\n"
        "|---|---|---|---|---|---|"
    )
    for cells in CELLS:
        for decoders in (1, args.decoders):
            shares = [
                found_share(law, other, decoders, args.times, seed)
                for law in laws(cells, 3, 11)
                for seed, other in enumerate(directions(law, 13))
            ]
            worst, mean = min(shares), sum(shares) / len(shares)
            draws = needed(cells, decoders)
            print(
                f"| {cells} | {decoders} | {draws} | {len(shares)} | {worst:.1%} | {mean:.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
