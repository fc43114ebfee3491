"""`python -m workbench prove`: whether the function in a file verifies drafts without loss.

It runs the file, so it belongs to the terminal: nothing that a visitor of the page sends loads
code.
"""

import argparse
import runpy
from pathlib import Path
from typing import Any

from decoders.errors import InputError, first_line, quoted
from decoders.testing import CHILDREN, TooManyWays, prove
from workbench.terminal import flags

DESCRIPTION = """Say by enumeration whether a function that verifies drafts is lossless.

FILE is Python code with a function
  verify(p, q, tokens, source)           for chains: returns how many tokens it keeps and the next
  verify(p, q, tokens, parents, source)  for trees: returns the last row that it keeps and the next
All its chance comes from source.accept(probability) and source.draw(weights).

The exit status is 0 if it is lossless, 1 if it is not, 2 if nothing can be said."""
EXAMPLES = """examples:
  python -m workbench prove my_rule.py
  python -m workbench prove my_tree_rule.py --function verify_tree --children without-replacement
"""


def register(commands: Any) -> None:
    command = flags.command(
        commands, "prove", "whether a verification rule is lossless", DESCRIPTION, EXAMPLES
    )
    command.set_defaults(command=run)
    command.add_argument("file", metavar="FILE", help="a file with Python code, which is run")
    command.add_argument(
        "--function", default="verify", metavar="NAME", help="the function (default: verify)"
    )
    command.add_argument(
        "--children",
        choices=list(CHILDREN),
        default="with-replacement",
        help="how draft tokens come from q (default: with-replacement)",
    )


def run(args: argparse.Namespace) -> int:
    try:
        Path(args.file).read_bytes()  # what the code itself cannot read is another matter
    except OSError as error:
        raise InputError(f"{args.file} cannot be read: {error.strerror}.") from None
    try:
        names = runpy.run_path(args.file)
    # A reader's file can fail in any way.
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{args.file} failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    if args.function not in names:
        raise InputError(
            f"{args.file} has no function {quoted(args.function)}; name one with --function."
        )
    try:
        proof = prove(names[args.function], sample=CHILDREN[args.children])
    except TooManyWays as error:
        raise InputError(f"The function draws too often: {error}.") from None
    print(proof)
    return int(not proof.lossless)
