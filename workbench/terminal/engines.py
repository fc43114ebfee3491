"""The engines that a command may ask: those that are named, and the URLs of its flag."""

import argparse
import dataclasses
from collections.abc import Callable

from workbench.engines import addresses
from workbench.engines.addresses import FILE, LISTED, Engine

GIVEN = "given"  # an engine of a URL; runs hold names and no addresses


def add(command: argparse.ArgumentParser) -> None:
    """Add the flag that `given` reads."""
    command.add_argument(
        "--engines", nargs="+", metavar="ENGINE", default=[],
        help=f"servers of other engines to compare: URLs, or names from {LISTED} or {FILE}",
    )  # fmt: skip


def given(args: argparse.Namespace) -> dict[str, Engine]:
    """The engines of the flag, by name; those of URLs are called given-1, given-2, …

    Raises:
        InputError: for a name or a URL that cannot be used
    """
    found: dict[str, Engine] = {}
    for number, word in enumerate(getattr(args, "engines", ()), 1):
        engine = addresses.named(word)
        if "://" in word:
            engine = dataclasses.replace(engine, name=f"{GIVEN}-{number}")
        found[engine.name] = engine
    return found


def known(args: argparse.Namespace) -> Callable[[], dict[str, Engine]]:
    """Gives all engines that a study of this command may name."""
    return lambda: {**addresses.engines(), **given(args)}
