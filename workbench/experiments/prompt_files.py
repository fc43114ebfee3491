"""Reads files of prompts with care: their size, their encoding, their lines; what is malformed is one sentence with file and line."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from decoders import InputError
from workbench.experiments.sets import Item
from workbench.studies.prompts import LARGEST_FILE, LONGEST_PROMPT, MOST_PROMPTS

LARGEST = 16 * LARGEST_FILE  # bytes: train files of SQuAD and Spider are larger than a file of prompts
LONGEST = 4 * LONGEST_PROMPT  # characters: articles


def text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path.name} is larger than {LARGEST // 2**20} MB; give a smaller file.")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path.name}, line {line}: not text in UTF-8; save the file as plain text in UTF-8."
        ) from None


def lines(path: Path) -> Iterator[tuple[str, Any]]:
    """(place, value) of each line of a JSONL file."""
    for number, line in enumerate(text(path).split("\n"), 1):
        if line.strip():
            place = f"{path.name}, line {number}"
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"{place}: not JSON.") from None


def whole(path: Path) -> Any:
    """The value of a JSON file."""
    try:
        return json.loads(text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path.name}, line {error.lineno}: not JSON ({error.msg}).") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path.name}: not JSON.") from None


def take(place: str, value: Any, key: str, kind: type[Any] = str) -> Any:
    """`value[key]` of that type, or InputError that names the place."""
    names: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
    found: Any = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (kind is str and not _is_text(found)):
        raise InputError(f'{place}: must have {names[kind]} as "{key}".')
    if kind is str and len(found) > LONGEST:
        raise InputError(f'{place}: "{key}" has {len(found):,} characters; at most {LONGEST:,} are read.')
    return found


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def gathered(read: Callable[[Path], Iterator[Item]]) -> Callable[[Path], tuple[Item, ...]]:
    def all_of(path: Path) -> tuple[Item, ...]:
        items = tuple(read(path))
        if len(items) > 20 * MOST_PROMPTS:
            raise InputError(f"{path.name} has {len(items):,} prompts; give at most {20 * MOST_PROMPTS:,}.")
        return items

    return all_of


def table(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """(place, row) of a CSV file with a head that has these columns."""
    csv.field_size_limit(LONGEST * 4)
    reader = csv.DictReader(io.StringIO(text(path), newline=""))
    try:
        missing = [c for c in columns if c not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{path.name}, line 1: the head has no column {missing[0]!r}.")
        for row in reader:
            yield f"{path.name}, line {reader.line_num}", row
    except csv.Error as error:
        raise InputError(f"{path.name}, line {reader.line_num}: {error}.") from None
