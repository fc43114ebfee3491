"""Tables 2 to 4 of EMS-SD (Ni et al. 2024, arXiv 2405.07542) on the embedded pair, or on SmolLM2.

Greedy, vanilla, unpadded cache, unpadded inputs, both, and dynamic batches.

    python -m tools.batch [--pair NAME] [--sizes 1 2 4 8 16 24] [--prompts 24] [--tokens 64]
                          [--repeats 1] [--timings 1] [--only TABLE ...] [--json FOLDER]

`lookup` drafts by copying (match 2, copy 7) on prompts that repeat themselves, `speculative` by the
draft model (as tuned for the pair) on story openings, both at temperature 0 with texts of one
length; SmolLM2 (`--pair smollm2`) is asked the questions of the set `chats` instead. Runs that are
compared stand close together, batch size by batch size. Prints Markdown.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import decoders
from workbench.kinds.batch import SIZES, Batch, findings, paper_table
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice, tuned
from workbench.runs.events import Event, Finished
from workbench.runs.figures import BatchFigures, mean_speed, speed
from workbench.runs.record import Run
from workbench.show.tables import markdown
from workbench.studies.prompts import built_in
from workbench.studies.settings import Settings
from workbench.studies.study import SCHEMES

METHODS = {"lookup": "refrains", "speculative": "stories"}  # and the prompts of each


def asked(name: str, choice: PairChoice) -> tuple[decoders.Method, str]:
    """A decoder with its settings for a pair, and the prompts."""
    own = {"match": 2, "copy": 7} if name == "lookup" else tuned(choice).get(name, {})
    answers = choice.target == decoders.smollm2.NAME
    return decoders.catalog[name](**own), "chats" if answers else METHODS[name]


def followed(events: Iterable[Event]) -> Run:
    for event in events:
        if isinstance(event, Finished):
            r = event.result
            print(
                f"{r.decoder} {r.batch_size} {r.scheme}: {speed(r) or 0:.0f} tokens/s",
                file=sys.stderr,
            )
    return event.run


def tables(run: Run, decoder: str) -> str:
    """Both tables, the findings beside them, and the ratio of the paper's claim."""
    figures = BatchFigures(run)
    texts = [
        "Tokens/s, the reading of prompts left out (times greedy at the same batch size):",
        markdown(paper_table(figures, decoder, decoding=True)),
        "All of it, prompts included:", markdown(paper_table(figures, decoder, decoding=False)),
        *findings(run),
    ]  # fmt: skip
    both, vanilla = (
        {n: decoding_speed(figures, decoder, n, scheme) for n in figures.sizes}
        for scheme in ("unpadded", "vanilla")
    )
    ratios = [
        f"{both[n] / vanilla[n]:.2f} at batch {n}"
        for n in figures.sizes
        if n > 1 and both[n] and vanilla[n]
    ]
    claim = f"Both unpadded over vanilla, prompts left out: {', '.join(ratios) or 'not measured'}."
    return "\n\n".join([*texts, claim])


def decoding_speed(figures: BatchFigures, decoder: str, size: int, scheme: str) -> float | None:
    row = figures.row(decoder, size, scheme)
    return row and mean_speed(row.results, decoding=True)


def measure(name: str, device: Device, args: argparse.Namespace) -> Run:
    """Measure one decoder's batches with the options of the command line."""
    choice = PairChoice(args.pair)
    method, prompts = asked(name, choice)
    print(f"\n### {name} on {prompts}\n")
    settings = Settings(
        (method,), max_new_tokens=args.tokens, repeats=args.repeats, timings=args.timings,
        temperature=0.0, chat_template="auto",
    )  # fmt: skip
    study = Batch(
        built_in(prompts).first(args.prompts), settings, tuple(args.sizes), tuple(SCHEMES)
    )
    run = followed(device.run(study, choice))
    if args.json:
        (args.json / f"{name}.json").write_text(run.dumps())
    return run


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pair",
        help='"smollm2" or a folder with target/ and draft/ (default: the embedded pair)',
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--timings", type=int, default=1)
    parser.add_argument(
        "--only", nargs="+", choices=METHODS, default=list(METHODS), metavar="TABLE"
    )
    parser.add_argument("--json", type=Path, help="a folder for the runs as JSON")
    args = parser.parse_args(arguments)
    if args.json:  # before anything is measured
        args.json.mkdir(parents=True, exist_ok=True)
    device = Device(PairKeeper())
    for name in args.only:
        print(tables(measure(name, device, args), name))


if __name__ == "__main__":
    main()
