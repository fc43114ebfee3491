"""The settings of a comparison: those that all decoders share, and each decoder's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decoders import Method
from decoders.settings import setting


@dataclass(frozen=True)
class Settings:
    """Labels, ranges and help of the form, the flags and the endpoint come from these fields' metadata, as with a decoder's own.

    methods  the decoders with their own settings, each at most once, in the order they are shown
    Raises InputError for values out of range, and where no decoder is chosen.
    """

    methods: tuple[Method, ...]
    max_new_tokens: int = setting(64, "new tokens at most", low=1, high=100_000)
    temperature: float = setting(1.0, "0 takes the likeliest token, 1 the model's own distribution", low=0.0, high=100.0)
    top_k: int = setting(0, "keep only the k likeliest tokens; 0 keeps all", low=0, high=1_000_000)
    top_p: float = setting(1.0, "keep the likeliest tokens of this total probability", low=0.0, high=1.0)
    seed: int = setting(0, "seed of the first repeat; the next one has seed + 1", low=0, high=2**32 - 1)
    repeats: int = setting(1, "how often each decoder runs", low=1, high=1000)
    chat_template: bool = setting(False, "wrap the prompt in the tokenizer's chat template", choices=(False, True))

    def to_json(self) -> dict[str, Any]:
        """One flat object: the shared settings, `decoders` with the names, and under each name all its own settings."""

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> "Settings":
        """The same read back; what is left out has its default. Raises InputError for a name or value that does not exist."""
