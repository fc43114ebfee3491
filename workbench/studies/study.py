"""A study is jobs: what every kind of study is, and the one thing that is timed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, Self

from decoders import Method
from workbench.studies.prompts import Prompt
from workbench.studies.schemes import ALONE, SCHEMES
from workbench.studies.settings import Settings

Keep = Literal["trace", "text", "lengths", "figures"]


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to time: a decoder over all prompts of a study, in batches of one size.

    seed        of the first prompt; prompt i has seed + i;   repeat  which repeat of the study this is
    keep        what is kept of each prompt: "trace" its tokens and rounds, "text" its tokens, "lengths" the tokens that each round
                gained, "figures" none of these
    ignore_eos  continue after the end of a text;   max_cache_bytes, prefill_chunk  as in `decoders.stream`
    """

    method: Method
    repeat: int
    seed: int
    batch_size: int = 1
    scheme: str = ALONE
    keep: Keep = "trace"
    ignore_eos: bool = False
    max_cache_bytes: int | None = None
    prefill_chunk: int | None = None

    @property
    def batching(self) -> dict[str, Any]:
        """The options of `decoders.stream` that this job sets."""
        return {
            "max_batch": self.batch_size,
            "padding": SCHEMES[self.scheme].padding,
            "ignore_eos": self.ignore_eos,
            "max_cache_bytes": self.max_cache_bytes,
            "prefill_chunk": self.prefill_chunk,
        }

    @property
    def reads_prompts_apart(self) -> bool:
        """Whether a batch reads all its prompts in its first round, so that reading and decoding are timed apart."""
        unbounded = self.max_cache_bytes is None and self.prefill_chunk is None
        return SCHEMES[self.scheme].static and (self.batch_size == 1 or unbounded)


class Study(Protocol):
    """What is asked: plain frozen data, so that it can cross into another process.

    kind      names the kind in runs, links and files;   settings  the decoders and what they share
    title     one line that tells this study from others of its kind;   prompts  what is decoded
    """

    kind: ClassVar[str]

    @property
    def settings(self) -> Settings: ...

    @property
    def title(self) -> str: ...

    @property
    def prompts(self) -> Sequence[Prompt]: ...

    def jobs(self) -> list[Job]:
        """What is timed, in order; what is compared runs close together, so that a change of the machine affects all of it."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads back; it holds the settings under "settings"."""
        ...

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Raises InputError if the data cannot be used."""
        ...
