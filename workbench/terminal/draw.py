"""`python -m workbench draw`: one prompt, each decoder with many seeds."""

import argparse
from typing import Any

from decoders import catalog
from workbench.studies.draw import DEFAULTS, Draw, bounds
from workbench.studies.text import allowed, parse
from workbench.terminal import flags, study

START = {**DEFAULTS, "decoders": ["multinomial", "speculative", "mtad", "dsbd"]}
DESCRIPTION = (
    "Continue one prompt with many seeds, show the texts as a tree with counts, and test whether their first tokens are drawn as the "
    "large model alone would draw them."
)
EXAMPLES = """examples:
  python -m workbench draw "Once upon a time"
  python -m workbench draw "Once upon a time" --draws 1000 --decoders multinomial speculative typical --temperature 0.7 --json out.json
"""


def register(commands: Any) -> None:
    """Add the command to those of `python -m workbench`."""
    decoders = flags.listed("decoders", {name: method.summary for name, method in catalog.items()})
    help = "continue one prompt with many seeds, and compare the draws with the exact law"
    command = flags.command(commands, "draw", help, DESCRIPTION + decoders, EXAMPLES)
    command.set_defaults(command=run)
    flags.add_prompt(command)
    for field, metavar in zip(bounds(), ("N", "MB"), strict=True):
        flag, help = (
            f"--{field.name.replace('_', '-')}",
            f"{field.metadata['help']} ({allowed(field)}; default {field.default:g})",
        )
        command.add_argument(flag, metavar=metavar, help=help)
    flags.add(command, START)


def run(args: argparse.Namespace) -> int:
    own = {field.name: parse(field, text) for field in bounds() if (text := getattr(args, field.name)) is not None}
    return study.run(Draw(flags.prompt(args), flags.settings(args, START), **own), args)
