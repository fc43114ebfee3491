"""A batch study: a set of prompts decoded at several batch sizes and in several schemes, each timed next to greedy decoding."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from decoders import InputError, catalog
from decoders.inputs import is_whole
from decoders.settings import check, nearest, setting
from workbench.studies.prompts import Prompt, PromptSet
from workbench.studies.schemes import BASELINE, SCHEMES, baseline_scheme, schemes_at
from workbench.studies.settings import Settings
from workbench.studies.study import Job, Keep

SIZES = (1, 2, 4, 8, 16, 24)  # of ems-sd.txt, table 2
LARGEST_BATCH = 1024
MEGABYTE = 1e6
DEFAULTS = {"timings": 1}  # the shared settings whose default differs here


@dataclass(frozen=True)
class Batch:
    """What to measure. Raises InputError for a study that cannot be measured.

    prompt_set  the prompts and their name;   settings  the decoders and what they share; greedy always runs, as the baseline
    sizes       batch sizes;   schemes  names of `SCHEMES`
    ignore_eos  continue after the end of a text, so that every output has the same length
    cache_mb, prefill_chunk   limits of a batch, None for no limit; the form and the flags read range and help from the metadata
    """

    kind: ClassVar[str] = "batch"

    prompt_set: PromptSet
    settings: Settings
    sizes: tuple[int, ...] = SIZES
    schemes: tuple[str, ...] = tuple(SCHEMES)
    ignore_eos: bool = True
    cache_mb: float | None = setting(
        None,
        "memory budget: MB of cache for all requests together; a request waits until what it may need fits; only for schemes that pad nothing",
        low=0.01, high=1_000_000.0, choices=(None,),
    )  # fmt: skip
    prefill_chunk: int | None = setting(
        None, "most prompt tokens in one pass; the rest follow while other requests decode", low=1, high=1_000_000, choices=(None,)
    )  # fmt: skip

    def __post_init__(self) -> None:
        for field in bounds():
            check("batch", field, getattr(self, field.name))
        for size in self.sizes:
            if not is_whole(size) or not 1 <= size <= LARGEST_BATCH:
                raise InputError(f"A batch size must be a whole number from 1 to {LARGEST_BATCH}, not {size!r}.")
        for scheme in self.schemes:
            if not isinstance(scheme, str) or scheme not in SCHEMES:
                raise InputError(f"There is no scheme {scheme!r:.80}: {nearest(str(scheme), SCHEMES)}")
        if not isinstance(self.ignore_eos, bool):
            raise InputError(f"ignore_eos must be true or false, not {self.ignore_eos!r:.80}.")
        if not self.sizes or not self.schemes:
            raise InputError("No batch size or no scheme is chosen; choose at least one of each.")
        padded = [SCHEMES[s].label for s in self.schemes if SCHEMES[s].padding != "none"]
        if self.cache_mb is not None and max(self.sizes) > 1 and padded:
            raise InputError(
                f"A memory budget works only with schemes that pad nothing: leave out {', '.join(padded)}, or leave the budget empty."
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
        """Size by size, greedy before the others. What a round gains does not depend on the batch, so it is kept once per decoder."""
        kept: set[str] = set()
        methods = [m for m in self.settings.methods if m.name != BASELINE]
        jobs = []
        for repeat in range(self.settings.repeats):
            for size in sorted(set(self.sizes)):
                schemes = schemes_at(size, self.schemes)
                cells = [(catalog[BASELINE](), s) for s in dict.fromkeys(map(baseline_scheme, schemes))]
                for method, scheme in [*cells, *((m, s) for m in methods for s in schemes)]:
                    keep: Keep = "figures" if method.name in kept else "lengths"
                    kept.add(method.name)
                    jobs.append(
                        Job(
                            method, repeat, self.settings.seed + repeat, size, scheme, keep,
                            self.ignore_eos, self.max_cache_bytes, self.prefill_chunk,
                        )
                    )  # fmt: skip
        return jobs

    def to_json(self) -> dict[str, Any]:
        own = {"sizes": list(self.sizes), "schemes": list(self.schemes), "ignore_eos": self.ignore_eos}
        bound = {f.name: getattr(self, f.name) for f in bounds()}
        return {"prompts": self.prompt_set.to_json(), "settings": {**self.settings.to_json(), **own, **bound}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Batch":
        settings = data.get("settings")
        if not isinstance(settings, Mapping):
            raise InputError(f"The settings of a batch must be one JSON object, not {settings!r}.")
        own = [f.name for f in dataclasses.fields(cls) if f.name not in ("prompt_set", "settings")]
        given = {name: settings[name] for name in own if name in settings}
        for name in ("sizes", "schemes"):
            if not isinstance(given.get(name, []), (list, tuple)):
                raise InputError(f"`{name}` must be a list, not {given[name]!r}.")
            given |= {name: tuple(given[name])} if name in given else {}
        shared = {name: value for name, value in settings.items() if name not in own}
        return cls(PromptSet.from_json(data.get("prompts")), Settings.from_json({**DEFAULTS, **shared}), **given)


def bounds() -> list[dataclasses.Field]:
    """The fields that limit a batch."""
    return [f for f in dataclasses.fields(Batch) if f.metadata]


def least_budget(need: int) -> float:
    """The smallest `cache_mb`, in steps of a hundredth, that holds `need` bytes."""
    return math.ceil(need / MEGABYTE * 100) / 100
