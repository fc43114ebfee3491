"""Sets of prompts with answers, and the files that they are read from.

Every fault of a file gives one sentence with the file and the line.
"""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from workbench.studies.chats import Chat, Words
from workbench.studies.prompts import LARGEST_FILE, LONGEST_PROMPT, MOST_PROMPTS, is_text

# Bytes; training files of SQuAD and Spider are larger than a file of prompts.
LARGEST = 16 * LARGEST_FILE
LONGEST = 4 * LONGEST_PROMPT  # characters: articles


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a set.

    Attributes:
        question: the texts that the template takes, by name; or as "prompt" a chat
        place: where it was read, for messages
        answers: the values that the scorer compares the output with, by its names for them; {} if
            there are none
        category: for figures by category
        id: the prompt's name in the set
    """

    question: Mapping[str, Words]
    place: str
    answers: Mapping[str, Any] = field(default_factory=dict)
    category: str = ""
    id: str = ""


@dataclass(frozen=True)
class ScoredSet:
    """A set of prompts.

    Attributes:
        name: name of the set
        items: its prompts
        scorer: a name of `scores.SCORERS`, "" if there is nothing to score
        template: text with {names} of the question
        stop: the output counts up to the first of these texts
    """

    name: str
    items: tuple[Item, ...]
    scorer: str = ""
    template: str = "{prompt}"
    stop: tuple[str, ...] = ()

    def text(self, index: int) -> Words:
        """The prompt with this number as the models read it."""
        question = self.items[index].question
        prompt = question.get("prompt")
        return prompt if isinstance(prompt, Chat) else self.template.format_map(question)

    def answer(self, output: str) -> str:
        """The part of an output that counts."""
        for stop in self.stop:
            output = output.split(stop, 1)[0]
        return output

    @property
    def revision(self) -> str:
        """A hash of all prompts, answers and categories, the template, the scorer and the stops."""
        content = [[dict(i.question), dict(i.answers), i.category] for i in self.items]
        # A database has its name without its folder: the set is the same wherever it lies.
        whole = json.dumps(
            [self.template, self.stop, self.scorer, content],
            sort_keys=True,
            default=lambda value: value.name if isinstance(value, Path) else str(value),
        )
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Format:
    """The format of a public set.

    Attributes:
        read: reads the file
        files: names that the file may have; the first that exists is read
        template: name of a file of `templates`
        scorer: a name of `scores.SCORERS`, "" if there is nothing to score
        stop: the output counts up to the first of these texts
        says: the set in a few words
    """

    read: Callable[[Path], tuple[Item, ...]]
    files: tuple[str, ...]
    template: str
    scorer: str = ""
    stop: tuple[str, ...] = ()
    says: str = ""


def text(path: Path) -> str:
    """A file's text.

    Raises:
        InputError: if it is too large, cannot be read or is not UTF-8
    """
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(
                f"{path.name} is larger than {LARGEST // 2**20} MB; give a smaller file."
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path.name}, line {line}: not text in UTF-8; save the file as plain text in UTF-8."
        ) from None


def lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The lines of a JSONL file.

    Yields:
        (place, value) of each line

    Raises:
        InputError: if a line is not JSON
    """
    for number, line in enumerate(text(path).split("\n"), 1):
        if line.strip():
            place = f"{path.name}, line {number}"
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"{place}: not JSON.") from None


def whole(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        InputError: if it is not JSON
    """
    try:
        return json.loads(text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path.name}, line {error.lineno}: not JSON ({error.msg}).") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path.name}: not JSON.") from None


def entries(path: Path, of: str) -> list[tuple[str, Any]]:
    """(place, value) of each entry of a JSON file that is a list.

    Args:
        path: the file
        of: what it lists, for messages

    Raises:
        InputError: if it is not JSON, or no list
    """
    found = whole(path)
    if not isinstance(found, list):
        raise InputError(f"{path.name}: must be a list of {of}.")
    return [(f"{path.name}, entry {number}", value) for number, value in enumerate(found, 1)]


def take(place: str, value: Any, key: str, kind: type[Any] = str) -> Any:
    """`value[key]`, checked.

    Args:
        place: where the value was read, for messages
        value: an object of a file
        key: the key
        kind: the type that `value[key]` must have: str, list or dict

    Raises:
        InputError: if the key is missing, or its value has another type or is too long
    """
    names: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
    found: Any = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, kind) or (kind is str and ("\0" in found or not is_text(found))):
        raise InputError(f'{place}: must have {names[kind]} as "{key}".')
    if kind is str and len(found) > LONGEST:
        raise InputError(
            f'{place}: "{key}" has {len(found):,} characters; at most {LONGEST:,} are read.'
        )
    return found


def gathered(read: Callable[[Path], Iterator[Item]]) -> Callable[[Path], tuple[Item, ...]]:
    """Make a loader return all items; InputError if there are too many, or one is no text."""

    def all_of(path: Path) -> tuple[Item, ...]:
        items = tuple(read(path))
        for item in items:
            texts = item.question, item.answers, item.category, item.id
            if not is_text(json.dumps(texts, ensure_ascii=False, default=str)):
                raise InputError(
                    f"{item.place}: holds half a character (a lone surrogate); remove it."
                )
        if len(items) > 20 * MOST_PROMPTS:
            raise InputError(
                f"{path.name} has {len(items):,} prompts; give at most {20 * MOST_PROMPTS:,}."
            )
        return items

    return all_of


def table(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file.

    Args:
        path: the file
        columns: columns that its head must have

    Yields:
        (place, row) of each row

    Raises:
        InputError: if a column is missing or a row is malformed
    """
    csv.field_size_limit(LONGEST * 4)
    reader = csv.DictReader(io.StringIO(text(path), newline=""))
    try:
        missing = [c for c in columns if c not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{path.name}, line 1: the head has no column {quoted(missing[0])}.")
        for row in reader:
            yield f"{path.name}, line {reader.line_num}", row
    except csv.Error as error:
        raise InputError(f"{path.name}, line {reader.line_num}: {error}.") from None
