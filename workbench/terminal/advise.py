"""`python -m workbench advise`: which decoder pays on this machine, with this pair and these prompts."""

import argparse
from typing import Any

from rich.console import Console

from decoders import InputError
from workbench.experiments.advice import lines, verdict
from workbench.experiments.advisor import MOST_PROMPTS, Advice, advise
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.studies import prompts
from workbench.studies.settings import Settings
from workbench.terminal import flags, show

DESCRIPTION = (
    "Predict the speed-up of speculative decoding from acceptance and costs, measure the other decoders, and rank them."
)
EXAMPLES = """examples:
  python -m workbench advise
  python -m workbench advise --models "SmolLM2-1.7B + SmolLM2-135M" --prompts my.jsonl --temperature 0
"""


def register(commands: Any) -> None:
    """Add the command to those of `python -m workbench`."""
    command = flags.command(commands, "advise", "will a decoder pay here? predict and measure", DESCRIPTION, EXAMPLES)
    command.set_defaults(command=run)
    command.add_argument(
        "--prompts", default="stories", metavar="SET", help="stories, refrains, or a file (default: stories)"
    )
    command.add_argument(
        "--count", metavar="N", default="20", help=f"how many prompts, at most {MOST_PROMPTS} (default: 20)"
    )
    command.add_argument("--temperature", default="1", help="default: 1")
    command.add_argument("--max-new-tokens", default="64", metavar="TOKENS", help="default: 64")
    command.add_argument(
        "--measure-all", action="store_true", help="also measure every draft length, to check the prediction"
    )
    flags.add_models(command)


def run(args: argparse.Namespace) -> int:
    settings, chosen = asked(args), prompts.find(args.prompts)
    if not args.count.isdecimal():
        raise InputError(f"--count takes a whole number, not {args.count!r}.")
    texts = [p.text for p in chosen.first(int(args.count)).prompts]
    device, console = Device(PairKeeper()), Console(highlight=False)
    with Console(stderr=True).status("Loading the models") as status:
        pair = device.pair(flags.pair(args))
        for found in device.iterate(lambda: advise(pair, texts, settings, measure_all=args.measure_all)):
            if not isinstance(found, Advice):
                status.update(found)
    assert isinstance(found, Advice)  # it comes last
    console.print(show.grid(lines(found)), "", show.plain(verdict(found)), sep="\n", markup=False)
    return 0


def asked(args: argparse.Namespace) -> Settings:
    try:
        temperature, tokens = float(args.temperature), int(args.max_new_tokens)
    except ValueError:
        raise InputError("--temperature takes a number and --max-new-tokens a whole number, such as 64.") from None
    return Settings.from_json({"decoders": ["greedy"], "temperature": temperature, "max_new_tokens": tokens})
