"""`python -m workbench advise`: the decoders that pay on this machine with a pair and prompts."""

import argparse
from typing import Any

from rich.console import Group
from rich.text import Text

from workbench.kinds.advice import MOST_PROMPTS, Advice
from workbench.kinds.advice.view import sentences, unread
from workbench.runs.record import Run
from workbench.studies import prompts
from workbench.terminal import flags, study
from workbench.terminal.show import grid, plain, remarks

DESCRIPTION = (
    "Predict the speed-up of speculative decoding from acceptance and costs, measure the other "
    "decoders, and rank them."
)
PAIR = '--models "SmolLM2-1.7B + SmolLM2-135M"'
EXAMPLES = f"""examples:
  python -m workbench advise
  python -m workbench advise {PAIR} --prompts my.jsonl --temperature 0
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "advise", "predict and measure which decoders pay here", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    help = "stories, refrains, or a file (default: stories)"
    command.add_argument("--prompts", default="stories", metavar="SET", help=help)
    help = f"number of prompts, at most {MOST_PROMPTS} (default: {MOST_PROMPTS})"
    command.add_argument("--count", metavar="N", default=str(MOST_PROMPTS), help=help)
    help = "also measure every draft length, to check the prediction"
    command.add_argument("--measure-all", action="store_true", help=help)
    flags.add(command, Advice.usual, Advice)


def run(args: argparse.Namespace) -> int:
    chosen = prompts.find(args.prompts).first(flags.number("count", args.count))
    settings, own = flags.settings(args, Advice.usual), flags.own(args, Advice)
    advice = Advice(chosen, settings, args.measure_all, **own)
    return study.run(advice, args)


def summary(run: Run) -> Group:
    warning, finding, table = sentences(run)
    says = (Text(plain(text)) for text in (warning, finding, *unread(run)) if text)
    shown = Group(grid(table), "") if table else Group()
    return Group(shown, *says, "", *remarks(run))
