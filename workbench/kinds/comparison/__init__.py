"""A comparison: one prompt, several decoders side by side, with full traces."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from workbench.studies.prompts import Prompt, Words, checked, plain, title
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import OPENING, SETTINGS, SHOWN, Settings
from workbench.studies.study import Job, Start, Study


@dataclass(frozen=True)
class Comparison(Study):
    """A comparison.

    Attributes:
        prompt: the text to continue, or the chat to answer
        settings: the decoders and the settings that they share
        start: for a branch, the tokens that it continues; the prompt is their text

    Raises:
        InputError: for a prompt that is no text and no list of messages, or is empty or too long
    """

    kind: ClassVar[str] = "comparison"
    named: ClassVar[str] = "prompt"
    by_decoder: ClassVar[bool] = True
    asks_engines: ClassVar[bool] = True

    prompt: Words
    settings: Settings
    start: Start | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", checked(self.prompt))

    @property
    def title(self) -> str:
        return title(self.prompt)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (Prompt(self.prompt, "The prompt", self.start.ids if self.start else ()),)

    def jobs(self) -> list[Job]:
        """The jobs: all decoders with the first seed, then with the next.

        Greedy comes first, because the others are compared with it.
        """
        methods = sorted(self.settings.methods, key=lambda m: m.name != BASELINE)
        return [
            Job(m, i, self.settings.seed + i) for i in range(self.settings.repeats) for m in methods
        ]

    def to_json(self) -> dict[str, Any]:
        start = {"start": self.start.to_json()} if self.start else {}
        return {"prompt": plain(self.prompt), "settings": self.settings.to_json(), **start}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Comparison":
        start = Start.from_json(data["start"]) if data.get("start") is not None else None
        # Both are validated where they are used.
        prompt, settings = (cast(Any, data.get(key)) for key in ("prompt", "settings"))
        return cls(prompt, Settings.from_json(settings), start)


# The settings that page, terminal and endpoint begin with, besides those kept with the pair.
START = {
    "decoders": [method.name for method in SHOWN],
    **SETTINGS[OPENING],
    "chat_template": "auto",
}
