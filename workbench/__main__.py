"""The workbench without a browser: `python -m workbench compare "Once upon a time"`, `batch`, `runs`."""

import argparse
import sys
from contextlib import closing
from pathlib import Path

from rich.console import Console
from transformers.utils import logging as transformers_logging

from decoders import InputError, catalog
from workbench.measuring.session import Ended, compare
from workbench.models.load import load
from workbench.runs.store import Run, RunStore
from workbench.show import files as export
from workbench.show.quantities import side_by_side
from workbench.studies.presets import SETTINGS
from workbench.terminal import batch as batch_command
from workbench.terminal import flags as arguments
from workbench.terminal import show as terminal

START = {"decoders": next(iter(SETTINGS.values())).to_json()["decoders"]}
EXAMPLES = """examples:
  python -m workbench compare "Once upon a time"
  python -m workbench compare "Once upon a time" --decoders greedy mtad --temperature 0 --json out.json
  python -m workbench compare "Once upon a time" --decoders dsbd --set dsbd.draft_beams=6 --repeats 5 --csv out.csv
  python -m workbench compare "The capital of France is" --models "SmolLM2-1.7B + SmolLM2-135M"
  python -m workbench compare - < prompt.txt
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        self.exit(2, f"{message}; see {self.prog} --help.\n")


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 1 where a decoder failed, 2 for input that cannot be used, 130 where it was stopped."""
    args = parser().parse_args(arguments)
    try:
        return args.command(args)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="python -m workbench", description="Run decoders side by side, and look after past runs.")
    commands = top.add_subparsers(required=True, metavar="command", title="commands")
    decoder_list = "\n".join(f"  {name:14} {method.summary}" for name, method in catalog.items())
    one = commands.add_parser(
        "compare",
        help="decode one prompt with several decoders",
        description=f"Decode one prompt with several decoders, one after another so that each is timed alone.\n\ndecoders:\n{decoder_list}",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    one.set_defaults(command=compare_command)
    one.add_argument("prompt", help="the text to continue; - reads it from standard input")
    arguments.add(one, START)
    for kind in export.WRITERS:
        one.add_argument(f"--{kind}", metavar="FILE", type=Path, help=f"also write the run as {kind.upper()}")
    one.add_argument("--no-save", action="store_true", help="do not add the run to the past ones")

    batch_command.register(commands)

    runs = commands.add_parser("runs", help="list, show, compare, export, import or delete past runs", description="Past runs; listed where no action is given.")  # fmt: skip
    runs.set_defaults(command=list_command)
    actions = runs.add_subparsers(metavar="action", title="actions")
    for name, command, help, operands in (
        ("list", list_command, "the latest runs", ()),
        ("show", show_command, "the texts and figures of one run", ("id",)),
        ("compare", pair_command, "the figures of two runs side by side", ("a", "b")),
        (
            "export",
            export_command,
            f"write a run to a file, by its ending: {', '.join(export.WRITERS)}",
            ("id", "file"),
        ),
        ("import", import_command, "add a run from a JSON export", ("file",)),
        ("delete", delete_command, "forget a run", ("id",)),
    ):
        action = actions.add_parser(name, help=help, description=help.capitalize() + ".")
        action.set_defaults(command=command)
        for operand in operands:
            action.add_argument(operand)
    return top


def compare_command(args: argparse.Namespace) -> int:
    settings, console = arguments.settings(args, START), Console(highlight=False)
    files = {kind: path for kind in export.WRITERS if (path := getattr(args, kind))}
    arguments.check_folders(files.values())
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    store = None if args.no_save else RunStore()
    with Console(stderr=True).status("Loading the models"):
        transformers_logging.disable_progress_bar()
        pair = load(arguments.pair(args))
    with arguments.interruptible() as stop, closing(compare(pair, prompt, settings, cancel=stop)) as events:
        for event in terminal.follow(events, Console(stderr=True)):
            if isinstance(event, Ended):
                run = event.run
            elif event.result.repeat == 0:
                console.print(terminal.result(event.result))
    console.print("\n", terminal.legend(run.results), "\n", terminal.figures(run.results), sep="")
    if store is not None and run.results:
        store.save(run)
        console.print(f"\nkept as run {run.id}")
    for kind, path in files.items():
        arguments.write(path, export.WRITERS[kind](run))
    return 130 if run.cancelled else int(any(r.error for r in run.results))


def list_command(args: argparse.Namespace) -> int:
    runs = RunStore().list()
    Console(highlight=False).print(terminal.summaries(runs) if runs else "There are no runs yet.")
    return 0


def show_command(args: argparse.Namespace) -> int:
    run = RunStore().get(args.id)
    Console(highlight=False).print(terminal.run(run), "\n", terminal.figures(run.results), sep="")
    return 0


def pair_command(args: argparse.Namespace) -> int:
    a, b = (RunStore().get(id) for id in (args.a, args.b))
    Console(highlight=False).print(terminal.grid(*side_by_side(a.results, b.results)))
    return 0


def export_command(args: argparse.Namespace) -> int:
    path = Path(args.file)
    if path.suffix[1:] not in export.WRITERS:
        raise InputError(
            f"The file's name must end in {', '.join('.' + kind for kind in export.WRITERS)}, not {path.name!r}."
        )
    arguments.write(path, export.WRITERS[path.suffix[1:]](RunStore().get(args.id)))
    return 0


def import_command(args: argparse.Namespace) -> int:
    try:
        text = Path(args.file).read_bytes()
    except OSError as error:
        raise InputError(f"{args.file} cannot be read: {error.strerror}.") from None
    run = Run.from_json(text)
    RunStore().save(run)
    print(f"kept as run {run.id}")
    return 0


def delete_command(args: argparse.Namespace) -> int:
    RunStore().delete(args.id)
    return 0


if __name__ == "__main__":
    sys.exit(main())
