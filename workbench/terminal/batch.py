"""`python -m workbench batch`: a batch experiment from a terminal."""

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from transformers.utils import logging as transformers_logging

from workbench.measuring.batch import Ended, Progress, measure
from workbench.models.load import load
from workbench.show.tables import WRITERS, findings, table
from workbench.studies import prompts
from workbench.studies.batch import SIZES, BatchSettings, bounds
from workbench.studies.batch_records import WAYS, BatchRun, way_label
from workbench.studies.text import allowed, parse
from workbench.terminal import flags as arguments
from workbench.terminal import show as terminal

START = {"decoders": ["lookup", "speculative"], "temperature": 0.0}
DESCRIPTION = (
    "Decode a set of prompts in batches, and set each way to lay out a batch beside greedy decoding at the same size."
)
SHOWN = [
    "decoder",
    "batch",
    "way",
    "tokens/s",
    "x greedy",
    "padding",
    "at once",
    "same",
]  # what 80 columns hold; the files have all
EXAMPLES = """examples:
  python -m workbench batch --prompts refrains --decoders lookup --sizes 1 4 8
  python -m workbench batch --prompts my.jsonl --count 100 --decoders speculative mtad --ways unpadded dynamic --json out.json
  python -m workbench batch --sizes 8 --ways dynamic --cache-mb 2 --prefill-chunk 32
"""


def register(commands: Any) -> None:
    """Add the command to those of `python -m workbench`."""
    ways = "\n".join(f"  {name:16} {way.help}" for name, way in WAYS.items())
    command = commands.add_parser(
        "batch",
        help="decode a set of prompts in batches",
        description=f"{DESCRIPTION}\n\nways:\n{ways}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(command=run)
    command.add_argument(
        "--prompts", default="refrains", metavar="SET",
        help=f"{' or '.join(prompts.BUILT_IN)}; or a file with one prompt a line, a .jsonl file, or a folder of text files (default: refrains)",
    )  # fmt: skip
    command.add_argument("--count", type=int, metavar="N", help="the first N prompts of the set (default: all)")
    command.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        metavar="N",
        default=SIZES,
        help=f"batch sizes (default: {' '.join(map(str, SIZES))})",
    )
    command.add_argument("--ways", nargs="+", metavar="WAY", default=list(WAYS), help="default: all")
    command.add_argument(
        "--end", action="store_true", help="end a text where it ends; by default all are of one length"
    )
    for field, metavar in zip(bounds(), ("MB", "TOKENS"), strict=True):
        flag, help = f"--{field.name.replace('_', '-')}", f"{field.metadata['help']} ({allowed(field)})"
        command.add_argument(flag, metavar=metavar, help=help)
    arguments.add(command, START)
    for kind in WRITERS:
        command.add_argument(f"--{kind}", metavar="FILE", type=Path, help=f"also write it as {kind.upper()}")


def run(args: argparse.Namespace) -> int:
    """Exit status: 0, 1 where a request failed, 130 where it was stopped."""
    bound = {field.name: parse(field, text) for field in bounds() if (text := getattr(args, field.name)) is not None}
    settings = BatchSettings(
        arguments.settings(args, START), tuple(args.sizes), tuple(args.ways), not args.end, **bound
    )
    chosen = prompts.find(args.prompts)
    if args.count is not None:
        chosen = chosen.first(args.count)
    files = {kind: path for kind in WRITERS if (path := getattr(args, kind))}
    arguments.check_folders(files.values())
    with Console(stderr=True).status("Loading the models"):
        transformers_logging.disable_progress_bar()
        pair = load(arguments.pair(args))
    with arguments.interruptible() as stop, closing(measure(pair, chosen, settings, cancel=stop)) as events:
        found = follow(events, Console(stderr=True))
    console = Console(highlight=False)
    heads, rows = table(found)
    console.print(
        terminal.grid(SHOWN, [[row[heads.index(head)] for head in SHOWN] for row in rows]),
        "\n",
        *(f"\n{terminal.plain(words)}" for words in findings(found)),
        sep="",
        markup=False,
    )
    for kind, path in files.items():
        arguments.write(path, WRITERS[kind](found))
    return 130 if found.cancelled else int(any(cell.errors for cell in found.cells))


def follow(events: Any, console: Console) -> BatchRun:
    """Show the events as a bar; gives the run."""
    with Bars(
        TextColumn("{task.description}"), BarColumn(), console=console, transient=True, auto_refresh=False
    ) as bars:
        task = bars.add_task("", total=None)
        for event in events:
            if isinstance(event, Progress):
                way = way_label(event.decoder, event.batch_size, event.way)
                words = f"{event.decoder} {event.batch_size} {way} ({event.job + 1} of {event.jobs})"
                bars.update(
                    task, description=words, total=event.jobs, completed=event.job + event.tokens / event.budget
                )
                bars.refresh()
    assert isinstance(event, Ended)
    return event.run
