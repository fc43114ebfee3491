"""The command `decoding-workbench`, or `python -m workbench`.

Without a command it opens the page. `compare`, `draw`, `batch`, `experiment`, `runs`, `prove`,
`train-head` and `canary` do without a browser.
"""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

import decoders
from decoders.errors import whole
from workbench.kinds.registry import KINDS
from workbench.terminal import heads, runs, verdicts

DESCRIPTION = (
    "Without a command: open the page, and print its address. With one: run decoders, and manage "
    "past runs, in the terminal."
)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message}; see {self.prog} --help.\n")


def page(args: argparse.Namespace) -> None:
    # Imported late: the terminal starts without Gradio.
    from workbench.page.layout import prepare, serve

    serve(*prepare(), args.port)


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the command line without the name of the program; by default that of the process

    Returns:
        the exit status: 0, 1 if a decoder failed, 2 for input that cannot be used, 130 if it was
            stopped
    """
    called = Path(sys.argv[0]).name
    parser = Parser(
        prog="python -m workbench" if called.endswith(".py") else called, description=DESCRIPTION
    )
    parser.add_argument("--version", action="version", version=decoders.__version__)
    parser.add_argument(
        "--port",
        help="port of the page (default: the first free one from GRADIO_SERVER_PORT, or 7860, on)",
    )
    parser.set_defaults(command=page)
    commands = parser.add_subparsers(metavar="command", title="commands")
    for kind in KINDS.values():
        if (register := kind.part("register")) is not None:
            register(commands)
    runs.register(commands)
    heads.register(commands)
    verdicts.register(commands)
    args = parser.parse_args(arguments)
    if args.port and args.command is not page:
        parser.error("--port belongs to the page, which opens without a command")
    try:
        if args.port:
            args.port = whole(
                "--port", int(args.port) if args.port.isdecimal() else args.port, 2**16 - 1
            )
        return args.command(args) or 0
    except decoders.InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
