"""A draw: the same prompt continued with many seeds by each decoder, to see the distribution that it draws from."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from decoders import InputError
from decoders.settings import check, setting
from workbench.studies.batch import MEGABYTE
from workbench.studies.prompts import Prompt, checked
from workbench.studies.settings import Settings
from workbench.studies.study import Job

DEFAULTS = {"timings": 1, "max_new_tokens": 16}  # the shared settings whose default differs here
MOST_AT_ONCE = 64  # requests in one pass, so that a pass, and with it Stop, takes a fraction of a second
SCHEME = "dynamic"


@dataclass(frozen=True)
class Draw:
    """The form, the flags and the links read range and help from the fields' metadata. Raises InputError for what cannot be drawn.

    draws      seeds: `settings.seed` and those after it;   cache_mb  bounds the memory, None for no limit
    """

    kind: ClassVar[str] = "draw"

    prompt: str
    settings: Settings
    draws: int = setting(100, "how many texts each decoder draws, each with the next seed", low=10, high=1000)
    cache_mb: float | None = setting(
        512.0,
        "memory budget: MB of cache for all requests together; a draw waits until what it may need fits",
        low=0.01, high=1_000_000.0, choices=(None,),
    )  # fmt: skip

    def __post_init__(self) -> None:
        checked(self.prompt)
        for field in bounds():
            check("draw", field, getattr(self, field.name))
        if self.settings.repeats > 1:
            raise InputError(
                "Every draw is a repeat with a seed of its own: leave repeats at 1, and ask for more draws."
            )

    @property
    def title(self) -> str:
        return self.prompt

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (Prompt(self.prompt, "The prompt"),) * self.draws

    def jobs(self) -> list[Job]:
        """All draws of a decoder in batches of about the same size."""
        at_once = math.ceil(self.draws / math.ceil(self.draws / MOST_AT_ONCE))
        budget = None if self.cache_mb is None else round(self.cache_mb * MEGABYTE)
        return [
            Job(method, 0, self.settings.seed, at_once, SCHEME, "text", max_cache_bytes=budget)
            for method in self.settings.methods
        ]

    def to_json(self) -> dict[str, Any]:
        own = {field.name: getattr(self, field.name) for field in bounds()}
        return {"prompt": self.prompt, "settings": {**self.settings.to_json(), **own}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Draw":
        settings = data.get("settings")
        if not isinstance(settings, Mapping):
            raise InputError(f"The settings of draws must be one JSON object, not {settings!r:.80}.")
        own = {field.name: settings[field.name] for field in bounds() if field.name in settings}
        shared = {name: value for name, value in settings.items() if name not in own}
        prompt: Any = data.get("prompt")  # it is said what it may not be
        return cls(prompt, Settings.from_json({**DEFAULTS, **shared}), **own)


def bounds() -> list[dataclasses.Field]:
    """The fields that only draws have."""
    return [field for field in dataclasses.fields(Draw) if field.metadata]
