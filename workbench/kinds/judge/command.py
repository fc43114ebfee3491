"""`python -m workbench judge`: one draft judged by every rule."""

import argparse
from typing import Any

from rich.console import Console

from workbench.kinds.judge import SAMPLING, of_text
from workbench.show.looks import visible
from workbench.show.tables import Table
from workbench.studies.settings import shared
from workbench.studies.text import parse
from workbench.terminal import flags, show, study

DESCRIPTION = """Judge one draft by every verification rule, with the same random numbers for all.

The rules are those that the decoders run. For each: how many draft tokens it keeps, how many on
average over all random numbers, and why. Texts may be token ids: "[5, 9, 3]"."""
EXAMPLES = """examples:
  python -m workbench judge "Once upon a time" " there was a little girl"
  python -m workbench judge "Once upon a time" " there was" --rules match "typical(delta=1)"
  python -m workbench judge "Once upon a time" " there was" --temperature 0.7 --seed 3
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "judge", "one draft judged by every rule", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    flags.add_prompt(command)
    command.add_argument("draft", help="the draft tokens, as the text that they add")
    command.add_argument(
        "--rules", nargs="+", default=[], metavar="RULE", help="rules (default: all that fit)"
    )
    for field in shared():
        if field.name in (*SAMPLING, "seed"):
            flag, help = f"--{field.name.replace('_', '-')}", field.metadata["help"]
            if isinstance(field.default, bool):
                command.add_argument(flag, action="store_true", default=None, help=help)
            else:
                command.add_argument(flag, metavar=field.name.split("_")[-1].upper(), help=help)
    flags.add_models(command)


def run(args: argparse.Namespace) -> int:
    settings = {
        field.name: parse(field, value) if isinstance(value, str) else value
        for field in shared()
        if (value := getattr(args, field.name, None)) is not None
    }
    device, choice = study.loaded(args)
    answer = device.ask(choice, of_text, flags.operand(args), args.draft, args.rules, settings)
    console = Console(highlight=False)
    console.print("Draft:", " | ".join(map(visible, answer["tokens"])), markup=False)
    lines = [
        [row["title"], row["law"], str(row["kept"]), f"{row['mean']:.2f}", row["why"]]
        for row in answer["rows"]
    ]
    heads = ["rule", "its text", "keeps", "on average", "why"]
    console.print(show.grid(Table(heads, lines)))
    return 0
