"""The laws that decoders claim for their output."""

from enum import StrEnum
from typing import Literal

Tested = Literal["target", "first step"]


class Law(StrEnum):
    """A law of the output; as a text, its name in files, links and decoders of other packages."""

    TARGET = "target"
    BEAM_SAMPLING = "beam sampling"
    PER_LAYER = "beam sampling per layer"

    @property
    def words(self) -> str:
        """Words that complete "text distributed as"."""
        per_layer = "beam sampling, given each layer's width"
        return {Law.TARGET: "the target", Law.PER_LAYER: per_layer}.get(self, self.value)

    @property
    def tested(self) -> Tested:
        """The distribution that draws can be tested against.

        It is the target's of texts, or beam sampling's of the beams of the first step.
        """
        return "target" if self is Law.TARGET else "first step"
