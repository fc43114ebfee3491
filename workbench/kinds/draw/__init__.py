"""A draw: one prompt continued with many seeds, to see the distribution of each decoder."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from decoders import InputError
from decoders.settings import check, setting
from workbench.studies.prompts import Prompt, Words, checked, plain, title
from workbench.studies.schemes import MEGABYTE
from workbench.studies.settings import Settings
from workbench.studies.study import Job, Study

# Requests in one pass, so that a pass, and with it Stop, takes a fraction of a second.
MOST_AT_ONCE = 64
SCHEME = "dynamic"


@dataclass(frozen=True)
class Draw(Study):
    """A study of draws.

    Attributes:
        prompt: the text to continue, or the chat to answer
        settings: the decoders and the settings that they share
        draws: texts that each decoder draws, with `settings.seed` and the seeds after it
        cache_mb: memory budget in MB, or None

    Raises:
        InputError: for a study that cannot be drawn
    """

    kind: ClassVar[str] = "draw"
    named: ClassVar[str] = "prompt"
    usual: ClassVar[Mapping[str, Any]] = {"timings": 1, "max_new_tokens": 16}
    verb: ClassVar[str] = "Draw"
    counts: ClassVar[str] = "draws"
    has_law: ClassVar[bool] = True

    prompt: Words
    settings: Settings
    draws: int = setting(
        100, "texts that each decoder draws, each with the next seed", low=10, high=1000
    )
    cache_mb: float | None = setting(
        512.0,
        "memory budget: MB of cache for all requests together; a draw waits until its worst case "
        "fits",
        low=0.01,
        high=1_000_000.0,
        choices=(None,),
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", checked(self.prompt))
        for field in self.own():
            check("draw", field, getattr(self, field.name))
        if self.settings.repeats > 1:
            raise InputError(
                "Each draw already has its own seed: leave repeats at 1, and ask for more draws."
            )

    @property
    def title(self) -> str:
        return title(self.prompt)

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
        return {"prompt": plain(self.prompt), "settings": self.flat_settings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Draw":
        settings, own = cls.split(data)
        return cls(cast(Any, data.get("prompt")), settings, **own)


# The settings that the form and the command begin with.
START = {
    **Draw.usual,
    "decoders": ["multinomial", "speculative", "mtad", "dsbd"],
    "chat_template": "auto",
}
