"""`python -m workbench batch`: a set of prompts at several batch sizes and in several schemes."""

import argparse
import sys
from typing import Any

from rich.console import Group
from rich.text import Text

from workbench.kinds.batch import SIZES, START, Batch
from workbench.kinds.batch.view import findings
from workbench.runs.figures import rows
from workbench.runs.record import Run
from workbench.show.tables import Table, figures
from workbench.studies import prompts
from workbench.studies.schemes import SCHEMES
from workbench.terminal import flags, show, study

DESCRIPTION = (
    "Decode a set of prompts in batches, and compare each padding scheme with greedy decoding at "
    "the same batch size."
)
EXAMPLES = """examples:
  python -m workbench batch --prompts refrains --decoders lookup --sizes 1 4 8
  python -m workbench batch --prompts my.jsonl --count 100 --decoders speculative mtad \\
    --schemes unpadded dynamic --json out.json
  python -m workbench batch --sizes 8 --schemes dynamic --cache-mb 2 --prefill-chunk 32
"""


# The figures that fit into 80 columns; the files have all.
SHOWN = (
    "decoder",
    "batch",
    "scheme",
    "tokens/s",
    "× greedy",
    "padding",
    "at once",
    "same",
    "J/token",
)


def register(commands: Any) -> None:
    schemes = flags.listed("schemes", {name: scheme.help for name, scheme in SCHEMES.items()})
    command = flags.command(
        commands, "batch", "decode a set of prompts in batches", DESCRIPTION + schemes, EXAMPLES
    )
    command.set_defaults(command=run)
    command.add_argument(
        "--prompts",
        default="refrains",
        metavar="SET",
        help=f"{' or '.join(prompts.BUILT_IN)}; or a file with one prompt per line, a .jsonl file, "
        "or a folder of text files (default: refrains)",
    )
    command.add_argument(
        "--count", type=int, metavar="N", help="the first N prompts of the set (default: all)"
    )
    command.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        metavar="N",
        default=SIZES,
        help=f"batch sizes (default: {' '.join(map(str, SIZES))})",
    )
    command.add_argument(
        "--schemes",
        "--ways",
        nargs="+",
        metavar="SCHEME",
        default=list(SCHEMES),
        help="default: all",
    )
    command.add_argument(
        "--end",
        action="store_true",
        help="stop each text at its end; by default all have the same length",
    )
    flags.add(command, START, Batch)


def run(args: argparse.Namespace) -> int:
    own = flags.own(args, Batch)
    settings, chosen = flags.settings(args, START), prompts.find(args.prompts)
    if args.count is not None:
        chosen = chosen.first(args.count)
    if chosen.repeated:
        print(chosen.described, file=sys.stderr)
    return study.run(
        Batch(chosen, settings, tuple(args.sizes), tuple(args.schemes), not args.end, **own), args
    )


def summary(run: Run) -> Group:
    table = figures(run)
    shown = [i for i, head in enumerate(table.heads) if head in SHOWN]
    # Decoders have the names that flags use.
    lines = [
        [row.decoder, *(cells[i] for i in shown[1:])]
        for row, cells in zip(rows(run.results), table.rows, strict=True)
    ]
    return Group(
        show.grid(Table([table.heads[i] for i in shown], lines)),
        *show.remarks(run),
        "",
        "",
        *(Text(show.plain(words)) for words in findings(run)),
    )
