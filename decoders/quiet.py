"""Imports that stay silent (quietly)."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch  # first, for it sets the levels of its loggers  # noqa: F401


@contextmanager
def quietly(*names: str) -> Iterator[None]:
    """Let these loggers, and those below them, tell of errors alone for a while."""
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
