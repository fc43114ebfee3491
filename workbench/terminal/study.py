"""Runs a study for a command: progress, results, keeping the run, files and the exit status."""

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from rich.console import Console
from transformers.utils import logging as transformers_logging

from decoders import ModelPair
from workbench.measuring.device import Device
from workbench.models.keeper import PairKeeper
from workbench.models.presets import PairChoice
from workbench.runs.events import onto
from workbench.runs.record import Run
from workbench.runs.store import RunStore
from workbench.studies.study import Study
from workbench.terminal import flags, show


def loaded(args: argparse.Namespace) -> tuple[Device, PairChoice]:
    """The device, with the pair that the flags name in memory, and the choice of that pair.

    Raises:
        InputError: if the pair cannot be used
    """
    choice, device = flags.pair(args), Device(PairKeeper(), flags.every_engine(args))
    with Console(stderr=True).status("Loading the models"):
        transformers_logging.disable_progress_bar()
        device.pair(choice)
    return device, choice


def run(
    make: Study | Callable[[ModelPair], Study], args: argparse.Namespace, earlier: Run | None = None
) -> int:
    """Run a study as the flags say; if it is stopped, the finished part is still kept and written.

    Args:
        make: the study, or a function that makes it for the loaded pair
        earlier: a run of draws that the study adds to

    Returns:
        the exit status: 0, 1 if anything failed, 130 if it was stopped

    Raises:
        InputError: before any work, for input that cannot be used
    """
    console, files = Console(highlight=False), flags.files(args)
    device, choice = loaded(args)
    study = make(device.pair(choice)) if callable(make) else make
    with interruptible() as stop, closing(onto(earlier, device.run(study, choice, stop))) as events:
        run = show.follow(events, console, Console(stderr=True))
    console.print(show.summary(run))
    if run.results and not args.no_save:
        keep(run, console)
    for path, write in files.items():
        flags.write(path, write(run))
    return 130 if run.cancelled else int(any(result.errors for result in run.results))


def keep(run: Run, console: Console) -> None:
    """Add the run to past runs; if that fails, say so, and still show and write the results."""
    try:
        RunStore().save(run)
    except Exception as error:
        print(f"\nThe run was not kept: {error}", file=sys.stderr)
    else:
        console.print(f"\nkept as run {run.id}")


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
