"""A hundred draws beside the same number of tokens in the library's batches, on the embedded pair.

    python -m tests.speed.draw [--draws 100] [--tokens 16] [--rounds 3] [--at-once 64]

Both run interleaved in one process: a whole session, its warm-up, exact law and statistics
included, and `decoders.generate` over as many prompts for each decoder. Prints Markdown.
"""

import argparse
import statistics
import time

import torch

import decoders
from tests.speed.engine import interleaved, times_as_fast
from workbench.kinds.draw import MOST_AT_ONCE, Draw
from workbench.measuring import session
from workbench.runs.draws import findings

PROMPT = "Once upon a time, there was a little girl named Lily. She"
DECODERS = ["multinomial", "speculative", "mtad", "dsbd", "beam_sampling"]
DRAWN = {"temperature": 0.7, "top_p": 0.9}


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("draws", 100), ("tokens", 16), ("rounds", 3), ("at-once", MOST_AT_ONCE)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    pair = decoders.load_pair()
    shared = {**DRAWN, "max_new_tokens": args.tokens}
    runs, figures = {}, []
    for name in DECODERS:
        study = Draw.from_json(
            {"prompt": PROMPT, "settings": {"decoders": [name], "draws": args.draws, **shared}}
        )
        options = {**shared, "max_batch": args.at_once}
        runs[f"{name}, drawn"] = lambda study=study: figures.append(drawn(pair, study))
        runs[f"{name}, generated"] = lambda name=name, options=options: decoders.generate(
            pair, [PROMPT] * args.draws, name, **options
        )
    took = interleaved(runs, args.rounds)
    print(f"\n{args.draws} draws, {args.tokens} tokens each, {torch.get_num_threads()} threads\n")
    print("| decoder | draws, s | library, s | draws over library |\n|---|---|---|---|")
    for name in DECODERS:
        own, library = (statistics.median(took[f"{name}, {how}"]) for how in ("drawn", "generated"))
        ratio = times_as_fast(took, f"{name}, generated", f"{name}, drawn")
        print(f"| {name} | {own:.2f} | {library:.2f} | {ratio} |")
    whole = Draw.from_json(
        {"prompt": PROMPT, "settings": {"decoders": DECODERS, "draws": args.draws, **shared}}
    )
    began = time.perf_counter()
    drawn(pair, whole)
    together = time.perf_counter() - began
    library = sum(statistics.median(took[f"{name}, generated"]) for name in DECODERS)
    print(
        f"\nAll five in one run: {together:.2f} s, the library {library:.2f} s: "
        f"{together / library:.2f} times as long"
    )


def drawn(pair: decoders.ModelPair, study: Draw) -> object:
    *_, ended = session.run(pair, study)
    return findings(ended.run)


if __name__ == "__main__":
    main()
