"""What a visitor may do here: everything on one's own machine, less where the public shares one device."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from decoders import InputError

PUBLIC_TOKENS = 256
PUBLIC_REPEATS = 5
ZERO_GPU_SECONDS = 120


@dataclass(frozen=True)
class Limits:
    """public         whether strangers share this device (a Hugging Face Space)
    max_new_tokens, max_repeats   the most one comparison may ask for, None for no limit
    queue_size        visitors that may wait for the device
    custom_models     whether pairs outside the presets may be loaded
    """

    public: bool = False
    max_new_tokens: int | None = None
    max_repeats: int | None = None
    queue_size: int = 32
    custom_models: bool = True

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> "Limits":
        """SYSTEM=spaces or SPACE_ID tell a Space; WORKBENCH_MAX_TOKENS, WORKBENCH_QUEUE and ALLOW_CUSTOM_MODELS=1 set the rest."""
        public = environ.get("SYSTEM") == "spaces" or bool(environ.get("SPACE_ID"))
        return Limits(
            public=public,
            max_new_tokens=_count(environ, "WORKBENCH_MAX_TOKENS", PUBLIC_TOKENS if public else None),
            max_repeats=PUBLIC_REPEATS if public else None,
            queue_size=_count(environ, "WORKBENCH_QUEUE", 32) or 32,
            custom_models=not public or environ.get("ALLOW_CUSTOM_MODELS") == "1",
        )

    def check(self, max_new_tokens: int, repeats: int) -> None:
        """Raises InputError where a comparison asks for more than this place allows."""
        if self.max_new_tokens is not None and max_new_tokens > self.max_new_tokens:
            raise InputError(
                f"At most {self.max_new_tokens} new tokens here; ask for fewer, or run it on your own machine."
            )
        if self.max_repeats is not None and repeats > self.max_repeats:
            raise InputError(f"At most {self.max_repeats} repeats here; ask for fewer, or run it on your own machine.")


def _count(environ: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{name} must be a whole number of at least 1, not {text!r}.")
    return int(text)


def zero_gpu() -> bool:
    return bool(os.environ.get("SPACES_ZERO_GPU"))


def on_device(job: Callable[..., Any]) -> Callable[..., Any]:
    """The job as this place runs it: borrowed GPU time on a ZeroGPU Space, plainly anywhere else.

    There the job runs in another process, so it takes and yields plain data only.
    """
    if not zero_gpu():
        return job
    import spaces  # only ZeroGPU machines have it

    return spaces.GPU(duration=ZERO_GPU_SECONDS)(job)
