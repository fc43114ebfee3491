"""Runs a study for the commands that have one: its progress, its results, keeping the run, files and the exit status."""

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
from workbench.runs.record import Run
from workbench.runs.store import RunStore
from workbench.studies.study import Study
from workbench.terminal import flags, show


def loaded(args: argparse.Namespace) -> tuple[Device, PairChoice]:
    """The device with the pair that the flags name in memory. Raises InputError if it cannot be used."""
    choice, device = flags.pair(args), Device(PairKeeper())
    with Console(stderr=True).status("Loading the models"):
        transformers_logging.disable_progress_bar()
        device.pair(choice)
    return device, choice


def run(make: Study | Callable[[ModelPair], Study], args: argparse.Namespace) -> int:
    """Run a study, or what is made of the loaded pair, as the flags say. Exit status: 0, 1 if anything failed, 130 if it was stopped;
    what is finished is still kept and written. Raises InputError, before any work, for what cannot be used."""
    console, files = Console(highlight=False), flags.files(args)
    device, choice = loaded(args)
    study = make(device.pair(choice)) if callable(make) else make
    with interruptible() as stop, closing(device.run(study, choice, stop)) as events:
        found = show.follow(events, console, Console(stderr=True))
    console.print(show.summary(found))
    if found.results and not args.no_save:
        keep(found, console)
    for path, write in files.items():
        flags.write(path, write(found))
    return 130 if found.cancelled else int(any(result.errors for result in found.results))


def keep(run: Run, console: Console) -> None:
    """Add the run to the past ones; if that fails, say so and continue, so that what was measured is still shown and written."""
    try:
        RunStore().save(run)
    except Exception as error:
        print(f"\nThe run was not kept: {error}", file=sys.stderr)
    else:
        console.print(f"\nkept as run {run.id}")


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that the first interrupt sets, so that what is finished is kept; the second one raises as usual."""
    stop = threading.Event()

    def on_interrupt(*_: object) -> None:
        signal.signal(signal.SIGINT, usual)
        stop.set()

    usual = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, usual)
