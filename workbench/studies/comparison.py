"""A comparison: one prompt, several decoders side by side, everything they did kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from workbench.studies.prompts import Prompt, checked
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import Settings
from workbench.studies.start import Start
from workbench.studies.study import Job


@dataclass(frozen=True)
class Comparison:
    """Raises InputError for a prompt that is not text, or empty.

    start   of a branch: the tokens that it continues, of which the prompt is the text
    """

    kind: ClassVar[str] = "comparison"

    prompt: str
    settings: Settings
    start: Start | None = None

    def __post_init__(self) -> None:
        checked(self.prompt)

    @property
    def title(self) -> str:
        return self.prompt

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (Prompt(self.prompt, "The prompt", self.start.ids if self.start else ()),)

    def jobs(self) -> list[Job]:
        """All decoders with the first seed, then with the next; greedy first, because the others are compared with it."""
        methods = sorted(self.settings.methods, key=lambda m: m.name != BASELINE)
        return [Job(m, i, self.settings.seed + i) for i in range(self.settings.repeats) for m in methods]

    def to_json(self) -> dict[str, Any]:
        start = {"start": self.start.to_json()} if self.start else {}
        return {"prompt": self.prompt, "settings": self.settings.to_json(), **start}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Comparison":
        start = Start.from_json(data["start"]) if data.get("start") is not None else None
        prompt, settings = (cast(Any, data.get(key)) for key in ("prompt", "settings"))  # each says what it may not be
        return cls(prompt, Settings.from_json(settings), start)
