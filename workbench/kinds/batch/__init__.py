"""A batch study: prompts at several batch sizes and in several schemes, each next to greedy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from decoders import InputError, catalog
from decoders.errors import quoted
from decoders.inputs import is_whole
from decoders.settings import check, nearest, setting
from workbench.studies import prompts as prompt_links
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.schemes import (
    BASELINE,
    LARGEST_BATCH,
    MEGABYTE,
    SCHEMES,
    baseline_scheme,
    schemes_at,
)
from workbench.studies.settings import Settings
from workbench.studies.study import Job, Keep, Study

SIZES = (1, 2, 4, 8, 16, 24)  # of EMS-SD (arXiv 2405.07542), table 2


@dataclass(frozen=True)
class Batch(Study):
    """A batch study.

    Attributes:
        prompt_set: the prompts and their name
        settings: the decoders and the settings that they share; greedy always runs, as the baseline
        sizes: batch sizes
        schemes: names of `SCHEMES`
        ignore_eos: whether to continue after the end of a text, so that every output has the same
            length
        cache_mb: memory budget of a batch in MB, or None
        prefill_chunk: the most prompt tokens in one pass, or None

    Raises:
        InputError: for a study that cannot be measured
    """

    kind: ClassVar[str] = "batch"
    usual: ClassVar[Mapping[str, Any]] = {"timings": 1}
    verb: ClassVar[str] = "Measure"
    named: ClassVar[str] = "prompts"
    linked: ClassVar[tuple[str, ...]] = (*prompt_links.NAMES, "sizes", "schemes", "ignore_eos")
    batches: ClassVar[bool] = True

    prompt_set: PromptSet
    settings: Settings
    sizes: tuple[int, ...] = SIZES
    schemes: tuple[str, ...] = tuple(SCHEMES)
    ignore_eos: bool = True
    cache_mb: float | None = setting(
        None,
        "memory budget: MB of cache for all requests together; a request waits until its worst "
        "case fits; unpadded schemes only",
        low=0.01,
        high=1_000_000.0,
        choices=(None,),
    )
    prefill_chunk: int | None = setting(
        None,
        "most prompt tokens in one pass; the rest follow while other requests decode",
        low=1,
        high=1_000_000,
        choices=(None,),
    )

    def __post_init__(self) -> None:
        for field in self.own():
            check("batch", field, getattr(self, field.name))
        for size in self.sizes:
            if not is_whole(size) or not 1 <= size <= LARGEST_BATCH:
                raise InputError(
                    f"A batch size must be a whole number from 1 to {LARGEST_BATCH}, "
                    f"not {quoted(size)}."
                )
        for scheme in self.schemes:
            if not isinstance(scheme, str) or scheme not in SCHEMES:
                raise InputError(
                    f"There is no scheme {quoted(scheme)}: {nearest(str(scheme), SCHEMES)}"
                )
        if not isinstance(self.ignore_eos, bool):
            raise InputError(f"ignore_eos must be true or false, not {quoted(self.ignore_eos)}.")
        if not self.sizes or not self.schemes:
            raise InputError("No batch size or no scheme is chosen; choose at least one of each.")
        padded = [SCHEMES[s].label for s in self.schemes if SCHEMES[s].padding != "none"]
        if self.cache_mb is not None and max(self.sizes) > 1 and padded:
            raise InputError(
                "A memory budget works only with schemes that pad nothing: leave out "
                f"{', '.join(padded)}, or leave the budget empty."
            )

    @property
    def title(self) -> str:
        return f"{len(self.prompts)} {self.prompt_set.name}"

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return self.prompt_set.prompts

    @property
    def max_cache_bytes(self) -> int | None:
        return None if self.cache_mb is None else round(self.cache_mb * MEGABYTE)

    def jobs(self) -> list[Job]:
        """The jobs, size by size, greedy before the others.

        The tokens that a round gains do not depend on the batch, so they are kept once per decoder.
        """
        names: set[str] = set()
        methods = [m for m in self.settings.methods if m.name != BASELINE]
        jobs = []
        for repeat in range(self.settings.repeats):
            for size in sorted(set(self.sizes)):
                schemes = schemes_at(size, self.schemes)
                cells = [
                    (catalog[BASELINE](), s) for s in dict.fromkeys(map(baseline_scheme, schemes))
                ]
                for method, scheme in [*cells, *((m, s) for m in methods for s in schemes)]:
                    keep: Keep = "figures" if method.name in names else "lengths"
                    names.add(method.name)
                    jobs.append(
                        Job(
                            method, repeat, self.settings.seed + repeat, size, scheme, keep,
                            self.ignore_eos, self.max_cache_bytes, self.prefill_chunk,
                        )
                    )  # fmt: skip
        return jobs

    def to_json(self) -> dict[str, Any]:
        return {
            "prompts": self.prompt_set.to_json(),
            "settings": {
                **self.flat_settings,
                "sizes": list(self.sizes),
                "schemes": list(self.schemes),
                "ignore_eos": self.ignore_eos,
            },
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Batch":
        settings, own = cls.split(data)
        for name in {"sizes", "schemes"} & own.keys():
            if not isinstance(own[name], (list, tuple)):
                raise InputError(f"`{name}` must be a list, not {quoted(own[name])}.")
            own[name] = tuple(own[name])
        return cls(PromptSet.from_json(data.get("prompts")), settings, **own)

    @classmethod
    def of_file(cls, data: Mapping[str, Any]) -> "Batch":
        """The study of a run in a file.

        Version 1 did not keep the texts of a file of prompts; its runs can be shown without them.
        """
        prompts = data.get("prompts")
        if isinstance(prompts, Mapping) and prompts.get("texts") is None:
            count = prompts.get("count")
            if not is_whole(count) or count < 1:
                raise InputError(
                    "The number of prompts must be a whole number of at least 1, "
                    f"not {quoted(count)}."
                )
            data = {**data, "prompts": {"name": prompts.get("name"), "texts": ["-"]}}
        return cls.from_json(data)

    @classmethod
    def to_link(cls, data: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
        settings, query = data["settings"], prompt_links.to_link(data, start)
        for name in ("sizes", "schemes"):
            if name in settings and settings[name] != start.get("settings", {}).get(name):
                query[name] = ",".join(map(str, settings[name]))
        return query | ({} if settings.get("ignore_eos", True) else {"ignore_eos": False})

    @classmethod
    def from_link(
        cls, name: str, text: str, data: dict[str, Any], settings: dict[str, Any]
    ) -> None:
        words = [word for word in text.split(",") if word]
        if name in prompt_links.NAMES:
            prompt_links.from_link(name, text, data)
        elif name == "sizes":
            settings["sizes"] = [prompt_links.whole(word) for word in words]
        elif name == "schemes":
            if unknown := [word for word in words if word not in SCHEMES]:
                raise InputError(
                    f"there is no scheme {quoted(unknown[0])}: {nearest(unknown[0], SCHEMES)}"
                )
            settings["schemes"] = words
        else:
            settings["ignore_eos"] = text != "False"


# The settings that the form and the command begin with.
START = {
    **Batch.usual,
    "decoders": ["lookup", "speculative"],
    "temperature": 0.0,
    "chat_template": "auto",
}
