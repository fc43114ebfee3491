"""Advice: a study that finds out which decoders pay for a pair on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from decoders import InputError, Method, catalog
from decoders.errors import is_whole, quoted, refuse
from decoders.settings import check, setting
from workbench.studies import prompt_links
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.schemes import BASELINE
from workbench.studies.settings import Settings
from workbench.studies.study import Job, Study

MOST_PROMPTS = 20
TIMED_LENGTHS = (1, 4, 8)  # draft lengths whose rounds are timed; those between are interpolated
LENGTHS = tuple(range(1, 9))
LOADS = (1, 2, 4, 8, 16)  # requests at once
MOST_LOADS, LARGEST_LOAD = 8, 64
LOADED_LENGTHS = (1, 4)  # draft lengths whose rounds are timed under load
LOADED_PROMPTS = 2  # prompts on which they are, but for large loads, whose timings are long
MOST_COPIES = 16  # copies of texts at one load, on all prompts together, unless it is one prompt
TEXTS = catalog["multinomial"]()  # writes the texts that both models read
OTHERS = ("lookup", "ngram", "spectr", "specinfer", "mcss", "typical", "bild", "mtad", "dsbd")


def read_loads(owner: str, value: Any) -> tuple[int, ...]:
    """Numbers of requests at once, in order, from a list or a text such as "1, 4, 16".

    Args:
        owner: the name of the study, for messages
        value: the caller's; empty for none

    Raises:
        InputError: for anything but a few whole numbers within the range
    """
    words = value.replace(",", " ").split() if isinstance(value, str) else value
    words = words if isinstance(words, (list, tuple)) else [words]
    numbers: list[Any] = [
        int(w) if isinstance(w, str) and w.isdecimal() and len(w) < 9 else w for w in words
    ]
    if len(numbers) > MOST_LOADS or not all(
        is_whole(n) and 1 <= n <= LARGEST_LOAD for n in numbers
    ):
        raise InputError(
            f"{owner}: loads must be at most {MOST_LOADS} whole numbers from 1 to {LARGEST_LOAD}, "
            f"as in 1, 4, 16, or empty; not {quoted(value)}."
        )
    return tuple(sorted(set(numbers)))


@dataclass(frozen=True)
class Advice(Study):
    """A study for advice.

    For each prompt the target writes a text, each place of which is read by both models; then
    greedy decoding, speculative decoding at several draft lengths and the other decoders are timed.
    Under load, greedy and speculative decoding are timed on batches of copies of one text: copies
    end together, so a batch is full from its first round to its last.

    Attributes:
        prompt_set: the prompts, at most MOST_PROMPTS
        settings: the sampling, and the decoders to measure besides speculative decoding
        measure_all: whether every draft length is timed, to check the prediction
        loads: the numbers of requests at once that are asked about; () leaves out load
        gpu_bandwidth: of a GPU to answer for, GB/s; None answers for none
        gpu_tflops: of that GPU, dense 16-bit TFLOP/s; None likewise

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
    loads: tuple[int, ...] = setting(
        LOADS,
        "requests at once at which speculation is timed, as 1,4,16; empty leaves load out",
        read=read_loads,
    )
    gpu_bandwidth: float | None = setting(
        None, "memory bandwidth of a GPU to answer for, GB/s", low=1.0, high=1e6, choices=(None,)
    )
    gpu_tflops: float | None = setting(
        None, "dense 16-bit TFLOP/s of that GPU", low=0.1, high=1e6, choices=(None,)
    )

    def __post_init__(self) -> None:
        for field in self.own():
            object.__setattr__(self, field.name, check(self.kind, field, getattr(self, field.name)))
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
        refuse(
            (
                (self.gpu_bandwidth is None) != (self.gpu_tflops is None),
                "A GPU is described by its bandwidth and its TFLOP/s; give both, or neither.",
            ),
            (
                self.gpu_bandwidth is not None and not self.loads,
                "A GPU is asked about load, and loads is empty; name some, as in 1, 4, 16.",
            ),
        )

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
        """Prompt by prompt, the target's text first.

        Every second prompt has the decoders in reverse order, so that a machine that gets slower or
        faster favours none of them.
        """
        seed, jobs = self.settings.seed, []
        timed = [*self.needed[1:], *self.others]
        for i in range(len(self.prompts)):
            jobs.append(Job(TEXTS, i, seed, keep="chances", prompt=i))
            order = reversed(timed) if i % 2 else timed
            jobs += [Job(method, i, seed, keep="lengths", prompt=i) for method in order]
        return [*jobs, *self._under_load()]

    @property
    def loaded(self) -> list[Method]:
        """The decoders that are timed under load."""
        return [
            catalog[BASELINE](),
            *(catalog["speculative"](draft_length=n) for n in LOADED_LENGTHS),
        ]

    @property
    def asks_the_machine(self) -> bool:
        return bool(self.loads)

    def _under_load(self) -> list[Job]:
        """The jobs of batches, prompt by prompt; one request at a time has been timed before."""
        sizes, seed = [load for load in self.loads if load > 1], self.settings.seed
        return [
            Job(method, i, seed, size, keep="figures", prompt=i)
            for i in range(min(LOADED_PROMPTS, len(self.prompts)))
            for size in sizes
            if not i or (i + 1) * size <= MOST_COPIES
            for method in (reversed(self.loaded) if i % 2 else self.loaded)
        ]

    def to_json(self) -> dict[str, Any]:
        own = {"measure_all": self.measure_all, "loads": list(self.loads)}
        settings = {**self.flat_settings, **own}
        return {"prompts": self.prompt_set.to_json(), "settings": settings}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Advice":
        settings, own = cls.split(data)
        return cls(PromptSet.from_json(data.get("prompts")), settings, **own)

    @classmethod
    def to_link(cls, data: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
        return prompt_links.to_link(data, start)

    @classmethod
    def from_link(
        cls, name: str, text: str, data: dict[str, Any], settings: dict[str, Any]
    ) -> None:
        prompt_links.from_link(name, text, data)
