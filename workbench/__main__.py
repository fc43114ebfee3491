"""The workbench without a browser: `python -m workbench compare "Once upon a time"`, `batch`, `experiment`, `runs`."""

import argparse
import sys

from decoders import InputError
from workbench.terminal import advise, batch, compare, experiment, runs


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        self.exit(2, f"{message}; see {self.prog} --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 1 if a decoder failed, 2 for input that cannot be used, 130 if it was stopped."""
    parser = Parser(prog="python -m workbench", description="Run decoders side by side, and manage past runs.")
    commands = parser.add_subparsers(required=True, metavar="command", title="commands")
    for command in (compare, batch, experiment, advise, runs):
        command.register(commands)
    args = parser.parse_args(arguments)
    try:
        return args.command(args) or 0
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
