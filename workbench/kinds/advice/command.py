"""`python -m workbench advise`: the decoders that pay on this machine with a pair and prompts."""

import argparse
import sys
from collections.abc import Generator
from contextlib import closing
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from decoders import InputError
from decoders.errors import quoted
from workbench.kinds.advice.advisor import MOST_PROMPTS, Advice, Step, advise
from workbench.kinds.advice.words import doubts, lines, verdict
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.studies import prompts
from workbench.studies.settings import Settings
from workbench.terminal import flags, show
from workbench.terminal.study import interruptible

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
    """Add the command to those of `python -m workbench`."""
    command = flags.command(
        commands, "advise", "predict and measure which decoders pay here", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    help = "stories, refrains, or a file (default: stories)"
    command.add_argument("--prompts", default="stories", metavar="SET", help=help)
    help = f"number of prompts, at most {MOST_PROMPTS} (default: 20)"
    command.add_argument("--count", metavar="N", default="20", help=help)
    command.add_argument("--temperature", default="1", help="default: 1")
    command.add_argument("--max-new-tokens", default="64", metavar="TOKENS", help="default: 64")
    help = "also measure every draft length, to check the prediction"
    command.add_argument("--measure-all", action="store_true", help=help)
    flags.add_models(command)


def run(args: argparse.Namespace) -> int:
    """Run the command.

    Returns:
        the exit status: 0, or 130 if it was stopped

    Raises:
        InputError: if an option or the pair cannot be used
    """
    settings, chosen = asked(args), prompts.find(args.prompts)
    if not args.count.isdecimal():
        raise InputError(f"--count takes a whole number, not {quoted(args.count)}.")
    texts = [p.text for p in chosen.first(int(args.count)).prompts]
    device, console, err = Device(PairKeeper()), Console(highlight=False), Console(stderr=True)
    with err.status("Loading the models"):
        pair = device.pair(flags.pair(args))
    with interruptible() as stop:
        steps = device.iterate(
            lambda: advise(
                pair, texts, settings, measure_all=args.measure_all, cancelled=stop.is_set
            )
        )
        found = _followed(steps, err)
    if found is None:
        print("Stopped.", file=sys.stderr)
        return 130
    sentences = [show.plain(text) for text in (doubts(found), verdict(found)) if text]
    console.print(show.grid(lines(found)), "", *sentences, sep="\n", markup=False)
    return 0


def _followed(steps: Generator[Step | Advice, None, None], err: Console) -> Advice | None:
    """The advice, None if it was stopped.

    Its steps are drawn as a bar, or printed as a line for each tenth where a bar cannot be drawn.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}{task.fields[left]}"),
    )
    tenth = -1
    with closing(steps), Progress(*columns, console=err, transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", left="")
        for found in steps:
            if isinstance(found, Advice):
                return found
            left = "" if found.left is None else f", about {show.duration(found.left)} left"
            bar.update(
                task, description=found.says, completed=found.done, total=found.total, left=left
            )
            if err.is_terminal:
                bar.refresh()
            elif (now := 10 * found.done // found.total) > tenth:
                tenth = now
                err.print(f"{found.says}: {found.done} of {found.total} done{left}", soft_wrap=True)
    return None


def asked(args: argparse.Namespace) -> Settings:
    """The sampling and the length of texts that the options name.

    Raises:
        InputError: if an option is wrong
    """
    try:
        temperature, tokens = float(args.temperature), int(args.max_new_tokens)
    except ValueError:
        raise InputError(
            "--temperature takes a number and --max-new-tokens a whole number, such as 64."
        ) from None
    return Settings.from_json(
        {"decoders": ["greedy"], "temperature": temperature, "max_new_tokens": tokens}
    )
