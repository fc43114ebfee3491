"""Advice: a study that finds out which decoders pay for a pair on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from decoders import InputError, Method, catalog
from decoders.errors import quoted
from workbench.studies import prompts as prompt_links
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.schemes import BASELINE, in_turn
from workbench.studies.settings import Settings
from workbench.studies.study import GONE, Job, Study

MOST_PROMPTS = 20
TIMED_LENGTHS = (1, 4, 8)  # draft lengths whose rounds are timed; those between are interpolated
LENGTHS = tuple(range(1, 9))
TEXTS = catalog["multinomial"]()  # writes the texts that both models read
OTHERS = (
    "lookup", "ngram", "spectr", "specinfer", "mcss", "typical", "bild", "mtad", "dsbd",
    "beam_search", "speculative_beam_search",
)  # fmt: skip


@dataclass(frozen=True)
class Advice(Study):
    """A study for advice.

    For each prompt the target writes a text, each place of which is read by both models; then
    greedy decoding, speculative decoding at several draft lengths and the other decoders are timed.

    Attributes:
        prompt_set: the prompts, at most MOST_PROMPTS
        settings: the sampling, and the decoders to measure besides speculative decoding
        measure_all: whether every draft length is timed, to check the prediction

    Raises:
        InputError: for a study that gives no advice
    """

    kind: ClassVar[str] = "advice"
    usual: ClassVar[Mapping[str, Any]] = {"timings": 1, "decoders": list(OTHERS)}
    verb: ClassVar[str] = "Ask"
    linked: ClassVar[tuple[str, ...]] = prompt_links.NAMES
    needs_draft: ClassVar[bool] = True

    prompt_set: PromptSet
    settings: Settings
    measure_all: bool = False

    def __post_init__(self) -> None:
        if len(self.prompts) > MOST_PROMPTS:
            raise InputError(
                f"Advice takes at most {MOST_PROMPTS} prompts, not {len(self.prompts):,}."
            )
        if self.settings.repeats > 1 or self.settings.timings > 1:
            raise InputError(
                "Advice times each decoder once on each prompt: leave repeats and timings at 1, "
                "and take more prompts."
            )
        if not isinstance(self.measure_all, bool):
            raise InputError(f"measure_all must be true or false, not {quoted(self.measure_all)}.")

    @property
    def title(self) -> str:
        return f"{len(self.prompts)} {self.prompt_set.name}"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.prompt_set.prompts

    @property
    def needed(self) -> list[Method]:
        """The decoders without which there is no advice."""
        lengths = LENGTHS if self.measure_all else TIMED_LENGTHS
        speculative = catalog["speculative"]
        return [TEXTS, catalog[BASELINE](), *(speculative(draft_length=n) for n in lengths)]

    @property
    def others(self) -> list[Method]:
        """The decoders that are measured beside them."""
        known = {method.name for method in self.needed}
        return [method for method in self.settings.methods if method.name not in known]

    def jobs(self) -> list[Job]:
        """Prompt by prompt, the target's text first."""
        seed, jobs = self.settings.seed, []
        timed = [*self.needed[1:], *self.others]
        for i in range(len(self.prompts)):
            jobs.append(Job(TEXTS, i, seed, keep="chances", prompt=i))
            jobs += [Job(method, i, seed, keep="lengths", prompt=i) for method in in_turn(timed, i)]
        return jobs

    def to_json(self) -> dict[str, Any]:
        settings = {**self.flat_settings, "measure_all": self.measure_all}
        return {"prompts": self.prompt_set.to_json(), "settings": settings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Advice":
        settings = data.get("settings")
        if isinstance(settings, Mapping):
            settings = {name: value for name, value in settings.items() if name not in GONE}
        shared, own = cls.split({"settings": settings})
        return cls(PromptSet.from_json(data.get("prompts")), shared, **own)

    @classmethod
    def to_link(cls, data: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
        return prompt_links.to_link(data, start)

    @classmethod
    def from_link(
        cls, name: str, text: str, data: dict[str, Any], settings: dict[str, Any]
    ) -> None:
        prompt_links.from_link(name, text, data)
