"""A comparison: one prompt, several decoders side by side, everything they did kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from decoders import InputError
from workbench.studies.prompts import Prompt
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import Settings
from workbench.studies.study import Job


@dataclass(frozen=True)
class Comparison:
    """Raises InputError for a prompt that is not text, or empty."""

    kind: ClassVar[str] = "comparison"

    prompt: str
    settings: Settings

    def __post_init__(self) -> None:
        if not isinstance(self.prompt, str):
            raise InputError(f"The prompt must be a text, not {type(self.prompt).__name__}.")
        if not self.prompt.strip():
            raise InputError("The prompt is empty; write a few words.")
        try:
            self.prompt.encode()
        except UnicodeEncodeError:
            raise InputError("The prompt contains half a character (a lone surrogate); type it again.") from None

    @property
    def title(self) -> str:
        return self.prompt

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (Prompt(self.prompt, "The prompt"),)

    def jobs(self) -> list[Job]:
        """All decoders with the first seed, then with the next; greedy first, because the others are compared with it."""
        methods = sorted(self.settings.methods, key=lambda m: m.name != BASELINE)
        return [Job(m, i, self.settings.seed + i) for i in range(self.settings.repeats) for m in methods]

    def to_json(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "settings": self.settings.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Comparison":
        prompt, settings = (cast(Any, data.get(key)) for key in ("prompt", "settings"))  # each says what it may not be
        return cls(prompt, Settings.from_json(settings))
