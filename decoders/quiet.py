"""Imports without the noise of their loggers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

# First, because torch sets the levels of its loggers when it is imported.
import torch  # noqa: F401


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
