"""`python -m workbench compare`: one prompt, several decoders."""

import argparse
from typing import Any

from decoders import catalog
from workbench.studies.comparison import Comparison
from workbench.studies.presets import SHOWN
from workbench.terminal import flags, study

START = {"decoders": [method.name for method in SHOWN]}
DESCRIPTION = "Decode one prompt with several decoders, one after another so that each is timed alone."
EXAMPLES = """examples:
  python -m workbench compare "Once upon a time"
  python -m workbench compare "Once upon a time" --decoders greedy mtad --temperature 0 --json out.json
  python -m workbench compare "Once upon a time" --decoders dsbd --set dsbd.draft_beams=6 --repeats 5 --csv out.csv
  python -m workbench compare "The capital of France is" --models "SmolLM2-1.7B + SmolLM2-135M"
  python -m workbench compare - < prompt.txt
"""


def register(commands: Any) -> None:
    """Add the command to those of `python -m workbench`."""
    decoders = flags.listed("decoders", {name: method.summary for name, method in catalog.items()})
    help = "decode one prompt with several decoders"
    command = flags.command(commands, "compare", help, DESCRIPTION + decoders, EXAMPLES)
    command.set_defaults(command=run)
    flags.add_prompt(command)
    flags.add(command, START)


def run(args: argparse.Namespace) -> int:
    settings = flags.settings(args, START)
    return study.run(Comparison(flags.prompt(args), settings), args)
