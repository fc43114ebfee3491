"""Limits of a visitor: none on their own machine, some if the public shares one device."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from decoders.errors import InputError, quoted
from workbench.studies.study import Study

PUBLIC_TOKENS = 256
PUBLIC_DRAWS = 200


@dataclass(frozen=True)
class Limits:
    """The largest study that this place runs, and who may wait for it; None means no limit.

    Attributes:
        public: whether strangers share this device (a Hugging Face Space)
        max_new_tokens: the most new tokens of a study
        max_repeats: the most repeats
        max_prompts: the most prompts
        max_timings: the most timings of a decoder
        max_draws: the most draws of a decoder
        queue_size: the most visitors that may wait for the device
        custom_models: whether pairs outside the presets may be loaded
    """

    public: bool = False
    max_new_tokens: int | None = None
    max_repeats: int | None = None
    max_prompts: int | None = None
    max_timings: int | None = None
    max_draws: int | None = None
    queue_size: int = 32
    custom_models: bool = True

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> "Limits":
        """The limits of this process.

        Args:
            environ: SYSTEM=spaces or SPACE_ID mean a Space; WORKBENCH_MAX_TOKENS, WORKBENCH_QUEUE
                and ALLOW_CUSTOM_MODELS=1 change its limits

        Raises:
            InputError: if a variable is not a whole number of at least 1
        """
        public = environ.get("SYSTEM") == "spaces" or bool(environ.get("SPACE_ID"))
        usual = PUBLIC if public else Limits()
        return replace(
            usual,
            max_new_tokens=_count(environ, "WORKBENCH_MAX_TOKENS", usual.max_new_tokens),
            queue_size=_count(environ, "WORKBENCH_QUEUE", usual.queue_size),
            custom_models=not public or environ.get("ALLOW_CUSTOM_MODELS") == "1",
        )

    @property
    def of_settings(self) -> dict[str, int]:
        """The largest value of each shared setting that is limited here."""
        most = {
            "max_new_tokens": self.max_new_tokens,
            "repeats": self.max_repeats,
            "timings": self.max_timings,
            "draws": self.max_draws,
        }
        return {name: value for name, value in most.items() if value is not None}

    def check(self, study: Study) -> None:
        """Refuse a study that asks for more than this place allows.

        Raises:
            InputError: if it does
        """
        for name, count, most in (
            ("new tokens", study.settings.max_new_tokens, self.max_new_tokens),
            ("repeats", study.settings.repeats, self.max_repeats),
            ("timings", study.settings.timings, self.max_timings),
            (study.counts, len(study.prompts), getattr(self, f"max_{study.counts}")),
        ):
            if most is not None and count > most:
                raise InputError(
                    f"At most {most} {name} here; ask for fewer, or run it on your own machine."
                )


PUBLIC = Limits(
    public=True,
    max_new_tokens=PUBLIC_TOKENS,
    max_repeats=5,
    max_prompts=24,
    max_timings=3,
    max_draws=PUBLIC_DRAWS,
)


def _count(environ: Mapping[str, str], name: str, default: Any) -> Any:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{name} must be a whole number of at least 1, not {quoted(text)}.")
    return int(text)
