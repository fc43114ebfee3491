"""This process: its files, noise of loggers at imports, torch's threads, and Python's garbage."""

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


def assets(package: str | Path = __file__) -> Path:
    """The folder of the files that a package needs at run time.

    Args:
        package: a file directly inside the package; by default this one
    """
    inside = Path(package).resolve().parent / "_assets"
    return inside if inside.is_dir() else inside.parents[1] / "assets"


@contextmanager
def quietly(*names: str) -> Iterator[None]:
    """For a while, let these loggers, and those below them, report errors alone."""
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in the calling thread alone, for operations that are short anyway.

    After a shared one OpenMP's threads wait in loops for a moment, on the cores of those that share
    passes (`decoders.engine.kernels.loading`).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def light_heap() -> Iterator[None]:
    """Let Python's collector look only at objects made in here.

    Walking all objects of the process takes as long as some laps, and a seventh of the time in
    which the embedded pair loads. Nothing is collected before, which would take as long: garbage is
    frozen with the rest, and collected afterwards. A heap that somebody has frozen stays so.
    """
    own = not gc.get_freeze_count()
    if own:
        gc.freeze()
    try:
        yield
    finally:
        if own:
            gc.unfreeze()
