"""Experiments in the terminal: a plan of many prompts, decoders and settings.

Each row is saved as soon as it is finished. `workbench.experiments` runs them.
"""

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text
from transformers.utils import logging as transformers_logging

from decoders import InputError
from decoders.errors import quoted, refuse
from workbench.experiments import driver
from workbench.experiments.journal import ExperimentProgress, Journal
from workbench.experiments.plan import ExperimentRequest, find, read, shipped
from workbench.experiments.report import WRITERS, Report, markdown, report
from workbench.experiments.workers import Cluster, Crew, InProcess
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.show.tables import Table
from workbench.studies.settings import counted, seconds_left
from workbench.terminal import flags, show


def watched(experiment: driver.Experiment, journal: Journal, crew: Crew) -> ExperimentProgress:
    with (
        show.interruptible() as stop,
        closing(driver.run(experiment, journal, crew, stop)) as happening,
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}{task.fields[left]}"),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
        ) as bar,
    ):
        task = bar.add_task("", left="")
        for now in happening:
            bar.update(
                task,
                description="stopping after this item" if stop.is_set() else now.doing,
                completed=now.done,
                total=now.total,
                left="" if now.eta is None else f", about {seconds_left(now.eta)} left",
            )
            bar.refresh()
    return now


def give(of: Report, args: argparse.Namespace, console: Console) -> None:
    console.print(Text(show.printable(markdown(of))), soft_wrap=True)
    for kind in args.to:
        path = args.out / f"{of.name}.{kind}"
        flags.write(path, WRITERS[kind](of))
        print(f"written: {path}")


def listed(console: Console, journal: Journal) -> None:
    plans = [[name, find(name).title] for name in shipped()]
    console.print(show.grid(Table(["plan", "title"], plans)), "")
    past = [
        [
            p.id, p.created[:16].replace("T", " "), p.title, f"{p.done}/{p.total}",
            "running" if p.running else "", f"{p.failed or ''}",
        ]
        for p in journal.experiments()
    ]  # fmt: skip
    console.print(
        show.grid(Table(["experiment", "created (UTC)", "plan", "items done", "", "failed"], past))
        if past
        else "There are no experiments yet."
    )


DESCRIPTION = (
    "Run a plan: every pair, set of prompts, decoder and setting that it names. Stop it at any "
    "time and run it again, or resume it: finished work is never repeated."
)
EXAMPLES = """examples:
  python -m workbench experiment --list
  python -m workbench experiment stories --limit 5
  python -m workbench experiment mtad-table4 --data DOWNLOADS --limit 50 --ray local
  python -m workbench experiment my-plan.toml --models "SmolLM2-1.7B + SmolLM2-135M"
  python -m workbench experiment resume ID
  python -m workbench experiment report ID --to html csv md
"""
ACTIONS = ("resume", "report")


def register(commands: Any) -> None:
    command = flags.command(
        commands, "experiment", "run a plan of many prompts, decoders and settings", DESCRIPTION,
        EXAMPLES,
    )  # fmt: skip
    command.set_defaults(command=run)
    command.add_argument(
        "words", nargs="*", metavar="PLAN",
        help="a plan's name or file; resume or report and an experiment's id",
    )  # fmt: skip
    command.add_argument("--list", action="store_true", help="list plans and past experiments")
    command.add_argument("--limit", metavar="N", help="use only the first N prompts of each set")
    command.add_argument(
        "--data", type=Path, metavar="FOLDER", help="folder of downloaded sets of prompts"
    )
    flags.add_models(command, "the plan's pairs, and the embedded pair for a plan that names none")
    command.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="workers on a Ray cluster: its address, auto, or local for one on this machine",
    )
    command.add_argument(
        "--to", nargs="+", choices=[*WRITERS], default=[],
        help="also write the report as files",
    )  # fmt: skip
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path(),
        help="folder for these files (default: here)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    if not args.out.is_dir():
        raise InputError(f"There is no folder {args.out} to write a report into.")
    console, journal, words = Console(highlight=False), Journal(), args.words
    if args.list or not words:
        listed(console, journal)
        return 0
    action, name = (words[0], "".join(words[1:2])) if words[0] in ACTIONS else ("run", words[0])
    if len(words) > (1 if action == "run" else 2) or not name:
        raise InputError(
            f"`experiment {action}` takes one name: a plan's or an experiment's; "
            "`experiment --list` shows them."
        )
    if action == "report":
        give(report(journal, name), args, console)
        return 0
    if action == "run":
        return follow(request_of(name, args), journal, args, console)
    request, _ = journal.experiment(name)
    return follow(request, journal, args, console, name)


def request_of(name: str, args: argparse.Namespace) -> ExperimentRequest:
    refuse(
        (
            args.limit is not None and not (args.limit.isdecimal() and int(args.limit) > 0),
            f"--limit takes a whole number of at least 1, not {quoted(args.limit)}.",
        ),
        (
            args.data is not None and not args.data.exists(),
            f"There is no folder {args.data}; --data takes the folder of downloaded sets.",
        ),
    )
    choice = flags.pair(args, PairChoice())  # a plan that names none is of the embedded pair
    of = read(name) if Path(name).suffix == ".toml" else find(name)
    named = args.models or choice != PairChoice()
    if named and not args.models and any(p.target for part in of.parts for p in part.pairs):
        raise InputError(
            f"The plan {of.name} names its models: give --models, or omit --device, --dtype "
            "and --quantization."
        )
    folder = args.data or (Path(name).parent if name.endswith(".toml") else None)
    return ExperimentRequest(
        of.source, f"{of.name}.toml", choice if named else None,
        args.limit and int(args.limit), str(folder.resolve()) if folder else None,
    )  # fmt: skip


def follow(
    request: ExperimentRequest,
    journal: Journal,
    args: argparse.Namespace,
    console: Console,
    resumed: str | None = None,
) -> int:
    """Run an experiment with a bar, and print its report.

    Args:
        resumed: id of the experiment to resume, None for a new one

    Returns:
        the exit status: 0, 1 if a row failed, 130 if it was stopped
    """
    request.read()  # raises errors of the plan before models are loaded
    pool = Cluster(args.ray) if args.ray else InProcess(Device(PairKeeper()))
    with Crew(pool) as crew:
        with Console(stderr=True).status("Loading the models"):
            transformers_logging.disable_progress_bar()
            experiment = driver.prepare(request, crew)
        if resumed not in (None, experiment.id):
            console.print(
                f"The code or the models have changed since {resumed}: this continues as "
                f"experiment {experiment.id}.",
                soft_wrap=True,
            )
        cells = counted(sum(len(block.cells) for block in experiment.blocks), "cell")
        console.print(
            Text(show.printable(f"{experiment.plan.title}: experiment {experiment.id}, {cells}")),
            soft_wrap=True,
        )
        now = watched(experiment, journal, crew)
    give(report(journal, experiment.id), args, console)
    if now.done < now.total:
        print(
            f"{now.done} of {now.total} items are done; run `experiment resume {experiment.id}` to "
            "finish the rest.",
            file=sys.stderr,
        )
        return 130
    return int(now.failed > 0)
