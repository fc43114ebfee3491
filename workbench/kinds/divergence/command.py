"""`python -m workbench diverge`: whether two greedy texts part at a near-tie or at a fault."""

import argparse
from typing import Any

from workbench.kinds.divergence import DTYPES, compared
from workbench.terminal import flags, study

DESCRIPTION = """Say where two greedy texts of one model part, and whether rounding explains it.

Texts are given as they follow the prompt, or as token ids: "[5, 9, 3]". The exit status is 1 for a
fault, 2 for input that cannot be used, else 0."""
EXAMPLES = """examples:
  python -m workbench diverge "Once upon a time" " there was a cat." " there was a dog."
  python -m workbench diverge "[1, 5]" "[9, 3]" "[9, 4]" --texts-in bfloat16
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "diverge", "two greedy texts: fault or near-tie", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    flags.add_prompt(command)
    for name in ("first", "second"):
        command.add_argument(name, help=f"the {name} text")
    help = "number type in which they were made, the coarser of two (default: the model's)"
    command.add_argument("--texts-in", choices=DTYPES, default="auto", help=help)
    flags.add_models(command)


def run(args: argparse.Namespace) -> int:
    device, choice = study.loaded(args)
    texts = flags.operand(args), args.first, args.second
    answer = device.ask(choice, compared, *texts, args.texts_in)
    print("\n".join(words for words in (answer["says"], answer["facts"]) if words))
    return int(answer["verdict"] == "fault")
