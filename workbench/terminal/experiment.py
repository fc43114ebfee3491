"""`python -m workbench experiment`: a plan of many prompts, decoders and settings, committed as it goes."""

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
from workbench.experiments import driver, plan_file
from workbench.experiments.files import WRITERS, markdown
from workbench.experiments.journal import Journal
from workbench.experiments.plan import Plan, pair_name
from workbench.experiments.report import Report, report
from workbench.experiments.request import Request
from workbench.experiments.workers import Crew, InProcess, Pool, gpus
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.show.tables import Table
from workbench.studies.text import counted
from workbench.terminal import flags, show
from workbench.terminal.study import interruptible

DESCRIPTION = "Run a plan: every pair, set of prompts, decoder and setting that it names. Finished work is never done twice: run it again, or resume it."
EXAMPLES = """examples:
  python -m workbench experiment --list
  python -m workbench experiment show stories
  python -m workbench experiment stories --limit 5
  python -m workbench experiment mtad-table4 --data DOWNLOADS --limit 50 --gpus all
  python -m workbench experiment my-plan.toml --models "SmolLM2-1.7B + SmolLM2-135M"
  python -m workbench experiment resume ID
  python -m workbench experiment report ID --to html csv md
"""
ACTIONS = ("show", "resume", "report")


def register(commands: Any) -> None:
    """Add the command to those of `python -m workbench`."""
    help = "run a plan of many prompts, decoders and settings"
    command = flags.command(commands, "experiment", help, DESCRIPTION, EXAMPLES)
    command.set_defaults(command=run)
    command.add_argument(
        "words", nargs="*", metavar="PLAN",
        help=f"a plan's name or file; or one of {', '.join(ACTIONS)} and a plan or an experiment's id",
    )  # fmt: skip
    command.add_argument("--list", action="store_true", help="the plans there are, and past experiments")
    command.add_argument("--limit", metavar="N", help="the first N prompts of each set")
    command.add_argument("--data", type=Path, metavar="FOLDER", help="where downloaded sets of prompts lie")
    flags.add_models(command)
    command.add_argument("--gpus", metavar="all|N", help="a process on each GPU, or on N of them")
    command.add_argument("--ray", metavar="ADDRESS", help="workers on a Ray cluster: its address, auto, or local")
    command.add_argument(
        "--to", nargs="+", metavar="KIND", default=[], help=f"also write the report: {', '.join(WRITERS)}"
    )
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path(), help="where the report goes (default: here)"
    )


def run(args: argparse.Namespace) -> int:
    for kind in args.to:
        if kind not in WRITERS:
            raise InputError(f"--to takes {', '.join(WRITERS)}, not {kind!r}.")
    if not args.out.is_dir():
        raise InputError(f"There is no folder {args.out} to write a report into.")
    console, journal, words = Console(highlight=False), Journal(), args.words
    if args.list or not words:
        listed(console, journal)
        return 0
    action, name = ("run", words[0]) if words[0] not in ACTIONS else (words[0], " ".join(words[1:2]))
    if len(words) > (1 if action == "run" else 2) or not name:
        raise InputError(
            f"`experiment {action}` takes one name: a plan's or an experiment's; `experiment --list` shows them."
        )
    if action == "show":
        console.print(Text(show.plain(described(plan(name)))))
        return 0
    if action == "report":
        found = report(journal, name)
        console.print(Text(show.plain(markdown(found))), soft_wrap=True)
        write(found, args)
        return 0
    request = Request.from_json(journal.experiment(name)["request"]) if action == "resume" else asked(name, args)
    return follow(request, journal, args, console, name if action == "resume" else None)


def plan(name: str) -> Plan:
    return plan_file.read(name) if Path(name).suffix == ".toml" else plan_file.find(name)


def asked(name: str, args: argparse.Namespace) -> Request:
    if args.limit is not None and not (args.limit.isdecimal() and int(args.limit) > 0):
        raise InputError(f"--limit takes a whole number of at least 1, not {args.limit!r}.")
    if args.data is not None and not args.data.exists():
        raise InputError(f"There is no folder {args.data}; --data takes the folder of the downloaded sets.")
    found, named = plan(name), args.models or args.device != "auto" or args.dtype != "auto"
    choice = flags.pair(args) if named else None
    data = (
        str(args.data.resolve()) if args.data else str(Path(name).resolve().parent) if name.endswith(".toml") else None
    )
    return Request(found.source, f"{found.name}.toml", choice, args.limit and int(args.limit), data)


def pool(args: argparse.Namespace) -> Pool:
    if args.gpus and args.ray:
        raise InputError("Give either --gpus or --ray, not both.")
    if args.gpus:
        return gpus(args.gpus)
    if args.ray:
        from workbench.experiments.cluster import Cluster  # an extra

        return Cluster(args.ray)
    return InProcess(Device(PairKeeper()))


def follow(request: Request, journal: Journal, args: argparse.Namespace, console: Console, resumed: str | None) -> int:
    """Run it with a bar. Exit status: 0, 1 if a row failed, 130 if it was stopped."""
    request.read()  # what cannot be used is said before models are loaded
    with Crew(pool(args)) as crew:
        with Console(stderr=True).status("Loading the models"):
            transformers_logging.disable_progress_bar()
            experiment = driver.prepare(request, crew)
        if resumed not in (None, experiment.id):
            console.print(
                f"The code or the models have changed since {resumed}: this continues as experiment {experiment.id}.",
                soft_wrap=True,
            )
        cells = counted(sum(len(block.cells) for block in experiment.blocks), "cell")
        console.print(Text(show.plain(f"{experiment.plan.title}: experiment {experiment.id}, {cells}")), soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}{task.fields[left]}"),
        )
        with (
            interruptible() as stop,
            closing(driver.run(experiment, journal, crew, stop)) as happening,
            Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar,
        ):
            task = bar.add_task("", left="")
            for now in happening:
                left = "" if now.eta is None else f", about {show.duration(now.eta)} left"
                words = "stopping after this one" if stop.is_set() else now.doing
                bar.update(task, description=words, completed=now.done, total=now.total, left=left)
                bar.refresh()
    found = report(journal, experiment.id)
    console.print(Text(show.plain(markdown(found))), soft_wrap=True)
    write(found, args)
    if now.done < now.total:
        print(
            f"{now.done} of {now.total} items are done; `experiment resume {experiment.id}` does the rest.",
            file=sys.stderr,
        )
        return 130
    return int(now.failed > 0)


def write(found: Report, args: argparse.Namespace) -> None:
    for kind in args.to:
        for name, text in WRITERS[kind](found).items():
            flags.write(args.out / name, text)
            print(f"written: {args.out / name}")


def listed(console: Console, journal: Journal) -> None:
    """The plans there are, and past experiments."""
    plans = [[name, plan_file.find(name).title] for name in plan_file.shipped()]
    console.print(show.grid(Table(["plan", "what it measures"], plans)), "")
    past = [
        [
            p.id,
            p.created[:16].replace("T", " "),
            p.title,
            f"{p.done}/{p.total}",
            "running" if p.running else "",
            f"{p.failed or ''}",
        ]
        for p in journal.experiments()
    ]
    heads = ["experiment", "created (UTC)", "plan", "items done", "", "failed"]
    console.print(show.grid(Table(heads, past)) if past else "There are no experiments yet.")


def described(found: Plan) -> str:
    lines = [found.title, "", found.about.strip(), ""]
    for part in found.parts:
        pairs = ", ".join(map(pair_name, part.pairs))
        methods = ", ".join(dict.fromkeys(m.name for m in part.methods))
        lines.append(
            f"{part.name}: {counted(len(part.methods), 'setting')} of {methods}; {', '.join(part.prompts)}"
            f"{f' (first {part.limit})' if part.limit else ''}; {pairs}; {part.max_new_tokens} tokens"
        )
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])
