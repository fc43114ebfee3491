"""Sets of prompts with answers: the project's own, and public ones read from local files."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a set.

    Attributes:
        question: the texts that the template takes, by name
        place: where it was read, for messages
        answers: the values that the scorer compares the output with, by its names for them; {} if
            there are none
        category: for figures by category
        id: the prompt's name in the set
    """

    question: Mapping[str, str]
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

    def text(self, index: int) -> str:
        """The prompt with this number as the models read it."""
        return self.template.format_map(self.items[index].question)

    def answer(self, output: str) -> str:
        """The part of an output that counts."""
        for stop in self.stop:
            output = output.split(stop, 1)[0]
        return output

    @property
    def revision(self) -> str:
        """A hash of all prompts, answers and categories, the template, the scorer and the stops."""
        content = [[dict(i.question), _named(i.answers), i.category] for i in self.items]
        whole = json.dumps(
            [self.template, self.stop, self.scorer, content], sort_keys=True, default=str
        )
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _named(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The answers without the folder of a database: the set is the same wherever it lies."""
    return {name: v.name if isinstance(v, Path) else v for name, v in answers.items()}


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
