"""Runs that come from a file: checked whole before anything keeps them."""

from collections import Counter
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from workbench.kinds.registry import studies
from workbench.runs.record import Run
from workbench.studies.prompts import LONGEST_TYPED

# The most that a run from a file may hold, so that every page that shows it stays quick: the place
# in the run, characters of each text there, and items of all lists there together. The first line
# that matches counts.
LIMITS = (
    ("title", LONGEST_TYPED, 0),
    ("study*", LONGEST_TYPED, 1_000_000),  # prompts, reference documents, a branch's token ids
    ("results", 0, 10_000),
    ("results.samples", 0, 200_000),
    ("results.samples.text", LONGEST_TYPED, 0),
    ("results.samples.prompt_parts*", LONGEST_TYPED, 100_000),
    ("results.samples.tokens", 0, 100_000),
    ("results.samples.rounds", 0, 100_000),
    ("*", 20_000, 1_000_000),
)
WIDEST = 1000  # fields of one object, and characters of a field's name
DEEPEST = 32  # lists and objects within each other


def read(text: str | bytes) -> Run:
    """The run in a JSON export.

    Raises:
        InputError: if any part of it cannot be shown; its settings are checked as those of a new
            study are
    """
    run = Run.from_json(text)
    _limited(run.to_json(), Counter())
    known = studies()
    if run.kind not in known:
        raise InputError(
            f"This is a run of the kind {quoted(run.kind)}; only {', '.join(known)} can be shown."
        )
    known[run.kind].of_file(run.study)
    return run


def _limited(value: Any, counts: Counter[str], place: str = "", depth: int = 0) -> None:
    """Refuse a value that exceeds the limits; `counts` has the items so far at each place."""
    longest, most = _limits(place)
    if isinstance(value, str) and len(value) > longest:
        raise _beyond(place, f"has {len(value):,} characters", f"{longest:,}")
    if isinstance(value, dict):
        if len(value) > WIDEST or max(map(len, value), default=0) > WIDEST:
            raise _beyond(
                place,
                "has too many fields or too long names",
                f"{WIDEST:,} fields and characters of a name",
            )
        for name, inner in value.items():
            _limited(inner, counts, f"{place}.{name}" if place else name, depth + 1)
    elif isinstance(value, list):
        counts[place] += len(value)
        if counts[place] > most:
            raise _beyond(place, f"has {counts[place]:,} items", f"{most:,}")
        for inner in value:
            _limited(inner, counts, place, depth + 1)
    if depth > DEEPEST:
        raise _beyond(place, "is nested too deeply", f"{DEEPEST} levels")


def _beyond(place: str, what: str, most: str) -> InputError:
    return InputError(
        f"The run's `{place:.80}` {what}; an imported run may have at most {most} there."
    )


@lru_cache(1000)  # a file may name its fields as it likes
def _limits(place: str) -> tuple[int, int]:
    return next(
        (characters, items) for places, characters, items in LIMITS if fnmatchcase(place, places)
    )
