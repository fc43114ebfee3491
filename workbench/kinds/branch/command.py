"""`python -m workbench branch`: continues the text of a past run from another token."""

import argparse
from typing import Any

from rich.console import Console

from workbench.kinds import branch
from workbench.runs.figures import label
from workbench.runs.store import RunStore
from workbench.show.looks import visible
from workbench.show.tables import Table
from workbench.terminal import flags, show, study

DESCRIPTION = (
    "Without --token: list the tokens that could stand at a place of a past run, with their "
    "probabilities under the large model and the decoder. With it: continue from there, as a new "
    "run that knows its parent."
)
EXAMPLES = """examples:
  python -m workbench branch 3f2a9c01d4e5 --decoder mtad --at 5
  python -m workbench branch 3f2a9c01d4e5 --decoder mtad --at 5 --token " cat" --decoders greedy
  python -m workbench branch 3f2a9c01d4e5 --decoder mtad --at 5 --token "#1234"
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "branch", "continue a past run from another token", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    command.add_argument("run", help="the id of a past run")
    command.add_argument(
        "--decoder", required=True, metavar="NAME", help="the decoder whose text it is"
    )
    command.add_argument(
        "--at", type=int, required=True, metavar="N", help="number of tokens of the text to keep"
    )
    command.add_argument(
        "--repeat", type=int, default=0, metavar="N", help="which repeat, from 0 (default: 0)"
    )
    command.add_argument(
        "--token",
        metavar="TOKEN",
        help="the next token: its text, if that is a single token, or its number, as in #123",
    )
    command.add_argument(
        "--decoders", nargs="+", metavar="NAME", help="decoders that continue (default: --decoder)"
    )
    flags.add_models(command)
    flags.add_files(command)


def run(args: argparse.Namespace) -> int:
    parent, where = RunStore().get(args.run), branch.TextPlace(args.decoder, args.at, args.repeat)
    if args.token is not None:
        return study.run(
            lambda pair: branch.branch(pair, parent, where, args.token, args.decoders), args
        )
    device, choice = study.loaded(args)
    choices, _ = device.ask(choice, branch.listed, parent, where)
    heads = ["token", "text", "p", f"p of {label(where.decoder)}"]
    lines = [
        [
            f"#{each.id}", visible(each.text), f"{each.raw:.4f}",
            f"{each.warped:.4f}" if each.warped else "never",
        ]
        for each in choices
    ]  # fmt: skip
    if choices[0].warped is None:  # the decoder does not sample
        heads, lines = heads[:-1], [line[:-1] for line in lines]
    Console(highlight=False).print(show.grid(Table(heads, lines)))
    return 0
