"""Sets of prompts with answers: those of the project, and the public formats read from local files."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a set, and what its output is scored against.

    question  what the template takes, by name;   answers  what a scorer needs, by its own names; {} if there is none
    category  for figures by category;   id  as the set names it;   place  where it was read, for messages
    """

    question: Mapping[str, str]
    place: str
    answers: Mapping[str, Any] = field(default_factory=dict)
    category: str = ""
    id: str = ""


@dataclass(frozen=True)
class ScoredSet:
    """scorer     a name of `scores.SCORERS`, "" if there is nothing to score
    template   text with {names} of the question;   stop  the output counts up to the first of these texts
    """

    name: str
    items: tuple[Item, ...]
    scorer: str = ""
    template: str = "{prompt}"
    stop: tuple[str, ...] = ()

    def text(self, index: int) -> str:
        """The prompt as the models read it."""
        return self.template.format_map(self.items[index].question)

    def answer(self, output: str) -> str:
        """The part of an output that counts."""
        for stop in self.stop:
            output = output.split(stop, 1)[0]
        return output

    @property
    def revision(self) -> str:
        """A hash of all prompts, answers, the template and where outputs stop."""
        content = [[dict(i.question), _named(i.answers), i.category] for i in self.items]
        whole = json.dumps([self.template, self.stop, self.scorer, content], sort_keys=True, default=str)
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _named(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Without the folder that a database lies in: the same set elsewhere is the same set."""
    return {name: Path(value).name if isinstance(value, Path) else value for name, value in answers.items()}


@dataclass(frozen=True)
class Format:
    """How a public set is read. files  the names its file has, the first that is there;   template  a file of `templates`;
    paper   which of the papers uses it, for the list of sets"""

    read: Callable[[Path], tuple[Item, ...]]
    files: tuple[str, ...]
    template: str
    scorer: str = ""
    stop: tuple[str, ...] = ()
    says: str = ""
