"""`python -m workbench runs`: past runs of every kind."""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from decoders.errors import InputError, quoted
from workbench.kinds import registry
from workbench.kinds.registry import studies
from workbench.runs.store import ORDERS, RunStore
from workbench.show.tables import side_by_side
from workbench.show.view import WRITERS
from workbench.terminal import flags, show


def register(commands: Any) -> None:
    command = commands.add_parser(
        "runs",
        help="list, show, compare, export, import or delete past runs",
        description="Past runs. Without an action, they are listed.",
    )
    command.set_defaults(command=list_runs, kind=None, search="", order="newest")
    actions = command.add_subparsers(metavar="action", title="actions")
    for name, run, help, operands in (
        ("list", list_runs, "past runs, the latest first", ()),
        ("show", show_run, "the texts and figures of one run", ("id",)),
        ("compare", compare_runs, "the figures of two runs side by side", ("a", "b")),
        (
            "export",
            export_run,
            f"write a run to a file in the format of its ending: {', '.join(WRITERS)}",
            ("id", "file"),
        ),
        ("import", import_run, "add a run from a JSON export", ("file",)),
        ("delete", delete_run, "delete a run", ("id",)),
    ):
        action = actions.add_parser(name, help=help, description=help.capitalize() + ".")
        action.set_defaults(command=run)
        for operand in operands:
            action.add_argument(operand)
        if run is list_runs:
            action.add_argument("--kind", choices=list(studies()), help="only runs of this kind")
            action.add_argument(
                "--search",
                default="",
                metavar="WORDS",
                help="only runs whose title, decoders, models or id contain all of these words",
            )
            action.add_argument(
                "--order", choices=list(ORDERS), default="newest", help="default: newest"
            )


def list_runs(args: argparse.Namespace) -> None:
    runs = RunStore().list(kind=args.kind, search=args.search, order=args.order)
    nothing = "No run matches." if args.kind or args.search.split() else "There are no runs yet."
    Console(highlight=False).print(show.summaries(runs) if runs else nothing)


def show_run(args: argparse.Namespace) -> None:
    Console(highlight=False).print(show.whole(RunStore().get(args.id)))


def compare_runs(args: argparse.Namespace) -> None:
    a, b = (RunStore().get(id) for id in (args.a, args.b))
    Console(highlight=False).print(show.grid(side_by_side(a, b)))


def export_run(args: argparse.Namespace) -> None:
    path = Path(args.file)
    if path.suffix[1:] not in WRITERS:
        raise InputError(
            f"The file's name must end in {', '.join('.' + kind for kind in WRITERS)}, "
            f"not {quoted(path.name)}."
        )
    flags.write(path, WRITERS[path.suffix[1:]](RunStore().get(args.id)))


def import_run(args: argparse.Namespace) -> None:
    try:
        text = Path(args.file).read_bytes()
    except OSError as error:
        raise InputError(f"{args.file} cannot be read: {error.strerror}.") from None
    print(f"kept as run {RunStore().add(registry.read(text)).id}")


def delete_run(args: argparse.Namespace) -> None:
    RunStore().delete(args.id)
