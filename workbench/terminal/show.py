"""A study for a command: its run, its files and the exit status; the look of runs in a terminal."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain

from rich.console import Console, Group
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table as Grid
from rich.text import Text
from transformers.utils import logging as transformers_logging

from workbench.kinds.registry import part_of
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs import events
from workbench.runs.record import Run, TokenRecord
from workbench.runs.store import RunStore, RunSummary
from workbench.show.looks import FATES
from workbench.show.tables import Table, figures, notes
from workbench.studies.settings import seconds_left, shortened
from workbench.studies.study import GONE, Study
from workbench.terminal import flags

TITLE_SHOWN = 40
# A symbol for each control character but the line break and the tab.
SYMBOLS = {
    code: 0x2400 + code if code < 32 else 0xFFFD
    for code in (*range(32), *range(127, 160))
    if chr(code) not in "\n\t"
}
LINE_SECONDS = 10.0  # between two lines of progress where no bar can be drawn


def printable(text: str) -> str:
    """The text with symbols, such as ␛ for ESC, for control characters, which a terminal obeys."""
    return text.translate(SYMBOLS)


def coloured(tokens: Iterable[TokenRecord]) -> Text:
    text = Text()
    for token in tokens:
        text.append(printable(token.text), FATES[token.fate].terminal)
    return text


def summary(run: Run) -> Group:
    own = part_of(run.kind, "summary")
    return own(run) if own else Group(grid(figures(run)), *remarks(run))


def remarks(run: Run) -> list[Text]:
    sources = dict.fromkeys(
        result.energy.source for result in run.results if result.energy.joules is None
    )
    return [
        Text(printable(words), "dim")
        for words in (*notes(run), *(f"energy {source}" for source in sources))
    ]


def whole(run: Run) -> Group:
    head = Text.assemble(
        (run.id, "bold"),
        f"  {run.created}  {printable(run.models)}\n",
        (printable(run.title), "dim"),
    )
    if run.kind in GONE:
        return Group(head, GONE[run.kind])
    text = part_of(run.kind, "text")  # None for a kind whose texts are not shown
    texts = [text(result) for result in run.results if result.repeat == 0] if text else [""]
    return Group(head, *texts, summary(run))


def grid(table: Table) -> Grid:
    """A table of texts, none of which is read as markup."""
    shown = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, head in enumerate(table.heads):
        # The first column holds ids to copy and names to read: the others fold before it does.
        shown.add_column(Text(head), overflow="fold", no_wrap=place == 0)
    for row in table.rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    return shown


def summaries(runs: Iterable[RunSummary]) -> Grid:
    lines = [
        [
            r.id,
            r.created[:16].replace("T", " "),
            r.kind,
            shortened(r.title, TITLE_SHOWN),
            ", ".join(r.decoders),
            r.asked,
            r.models,
        ]
        for r in runs
    ]
    return grid(
        Table(["run", "created (UTC)", "kind", "title", "decoders", "settings", "models"], lines)
    )


def follow(happening: Iterator[events.Event], console: Console, progress: Console) -> Run:
    """Show a study while it runs.

    Args:
        console: shows each text of a comparison's first repeat when it is finished
        progress: shows a bar; where none can be drawn, a line now and then

    Returns:
        the run
    """
    first = next(happening)  # if the study is refused, there is no bar yet
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f}/{task.total:.0f} tokens{task.fields[left]}"),
    )
    with Progress(*columns, console=progress, transient=True, auto_refresh=False) as bar:
        task, due = bar.add_task("", left=""), time.monotonic() + LINE_SECONDS
        for event in chain([first], happening):
            if isinstance(event, events.Started):
                bar.reset(task, description=event.at.words, left="")
                if not progress.is_terminal and time.monotonic() >= due:
                    progress.print(event.at.words, soft_wrap=True)
                    due = time.monotonic() + LINE_SECONDS
            elif isinstance(event, events.Progress):
                eta = event.eta_seconds
                left = "" if eta is None else f", about {seconds_left(eta)} left"
                bar.update(task, completed=event.done, total=event.budget, left=left)
                bar.refresh()
            elif (
                isinstance(event, events.Finished)
                and not (event.at.repeat or event.at.lap)
                and (text := part_of(event.run.kind, "text"))
            ):
                console.print(text(event.result))
    assert isinstance(event, events.Ended)  # it comes last
    return event.run


def loaded(args: argparse.Namespace) -> tuple[Device, PairChoice]:
    choice, device = flags.pair(args), Device(PairKeeper(), flags.every_engine(args))
    with Console(stderr=True).status("Loading the models"):
        transformers_logging.disable_progress_bar()
        device.pair(choice)
    return device, choice


def run(study: Study, args: argparse.Namespace) -> int:
    """Run a study as the flags say; if it is stopped, the finished part is still kept and written.

    Returns:
        the exit status: 0, 1 if anything failed, 130 if it was stopped

    Raises:
        InputError: before any work, for input that cannot be used
    """
    console, files = Console(highlight=False), flags.files(args)
    device, choice = loaded(args)
    with interruptible() as stop, closing(device.run(study, choice, stop)) as happening:
        run = follow(happening, console, Console(stderr=True))
    console.print(summary(run))
    if run.results and not args.no_save:
        try:
            RunStore().save(run)
        except Exception as error:  # the results are still shown and written
            print(f"\nThe run was not kept: {error}", file=sys.stderr)
        else:
            console.print(f"\nkept as run {run.id}")
    for path, write in files.items():
        flags.write(path, write(run))
    return 130 if run.cancelled else int(any(result.errors for result in run.results))


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first interrupt sets, to keep what is finished; the second raises."""
    stop = threading.Event()

    def on_interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, usual)
        stop.set()

    usual = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, usual)
