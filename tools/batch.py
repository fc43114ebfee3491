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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import decoders
from workbench.kinds.batch import SIZES, Batch, findings, paper_table
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice, tuned
from workbench.runs.events import Event, Finished
from workbench.runs.figures import BatchFigures, speed
from workbench.runs.record import Run
from workbench.show.tables import markdown
from workbench.studies.prompts import PromptSet, built_in
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
        {n: figures.speed(decoder, n, scheme, True) for n in figures.sizes}
        for scheme in ("unpadded", "vanilla")
    )
    ratios = [
        f"{both[n] / vanilla[n]:.2f} at batch {n}"
        for n in figures.sizes
        if n > 1 and both[n] and vanilla[n]
    ]
    return "\n\n".join(
        [
            *texts,
            f"Both unpadded over vanilla, prompts left out: {', '.join(ratios) or 'not measured'}.",
        ]
    )


@dataclass(frozen=True)
class Bench:
    """Measures batches on one pair, with the options of the command line.

    Attributes:
        device: runs them
        choice: the pair
        args: the options that `options` declares
    """

    device: Device
    choice: PairChoice
    args: argparse.Namespace

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Bench":
        if args.json:
            args.json.mkdir(parents=True, exist_ok=True)
        choice = PairChoice(args.pair)
        return cls(Device(PairKeeper()), choice, args)

    def measure(
        self,
        name: str,
        methods: Sequence[decoders.Method],
        prompts: PromptSet,
        sizes: Sequence[int],
        shared: Mapping[str, Any],
        schemes: Sequence[str] = tuple(SCHEMES),
        tokens: int | None = None,
    ) -> Run:
        settings = Settings(
            tuple(methods),
            max_new_tokens=tokens or self.args.tokens,
            repeats=self.args.repeats,
            timings=self.args.timings,
            **shared,
        )
        study = Batch(prompts, settings, tuple(sizes), tuple(schemes))
        run = followed(self.device.run(study, self.choice))
        if self.args.json:
            (self.args.json / f"{name}.json").write_text(run.dumps())
        return run

    def tables(self, names: Iterable[str]) -> list[Run]:
        """Measure and print the tables of these methods."""
        runs = []
        for name in names:
            method, prompts = asked(name, self.choice)
            print(f"\n### {name} on {prompts}\n")
            first = built_in(prompts).first(self.args.prompts)
            runs.append(
                self.measure(
                    name,
                    (method,),
                    first,
                    self.args.sizes,
                    {"temperature": 0.0, "chat_template": "auto"},
                )
            )
            print(tables(runs[-1], name))
        return runs


def options(description: str | None, tables: Sequence[str]) -> argparse.ArgumentParser:
    """The options of every measurement of batches.

    Args:
        description: what `--help` says
        tables: those that `--only` may name
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
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
    parser.add_argument("--only", nargs="+", choices=tables, default=tables, metavar="TABLE")
    parser.add_argument("--json", type=Path, help="a folder for the runs as JSON")
    return parser


def main() -> None:
    args = options(__doc__, tuple(METHODS)).parse_args()
    for _ in Bench.of(args).tables(name for name in METHODS if name in args.only):
        pass


if __name__ == "__main__":
    main()
