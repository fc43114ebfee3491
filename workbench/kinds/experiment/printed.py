"""What the terminal prints of experiments: how far one is, its report, and all there are."""

import argparse
from contextlib import closing

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from workbench.experiments import driver
from workbench.experiments import plan as plans
from workbench.experiments.files import WRITERS, markdown
from workbench.experiments.journal import Journal, Progress
from workbench.experiments.report import Report
from workbench.experiments.workers import Crew
from workbench.show.tables import Table
from workbench.terminal import flags, show, study


def watched(experiment: driver.Experiment, journal: Journal, crew: Crew) -> Progress:
    """Run an experiment with a bar; returns how far it came, at its end or at an interrupt."""
    with (
        study.interruptible() as stop,
        closing(driver.run(experiment, journal, crew, stop)) as happening,
        Bar(
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
                left="" if now.eta is None else f", about {show.duration(now.eta)} left",
            )
            bar.refresh()
    return now


def give(found: Report, args: argparse.Namespace, console: Console) -> None:
    """Print a report, and write its files that the options name."""
    console.print(Text(show.plain(markdown(found))), soft_wrap=True)
    for kind in args.to:
        for name, text in WRITERS[kind](found).items():
            flags.write(args.out / name, text)
            print(f"written: {args.out / name}")


def listed(console: Console, journal: Journal) -> None:
    """Print the plans that ship, and past experiments."""
    shipped = [[name, plans.find(name).title] for name in plans.shipped()]
    console.print(show.grid(Table(["plan", "title"], shipped)), "")
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
