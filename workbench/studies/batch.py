"""What a batch experiment measures: its settings, and the cells they come to."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from decoders import InputError, Method, catalog
from decoders.inputs import is_whole
from decoders.settings import check, nearest, setting
from workbench.show.quantities import MEGABYTE
from workbench.studies.batch_records import BASELINE, WAYS, baseline_way, ways_at
from workbench.studies.settings import Settings

SIZES = (1, 2, 4, 8, 16, 24)  # of the table
LARGEST_BATCH = 1024


@dataclass(frozen=True)
class BatchSettings:
    """What to measure. Raises InputError for what cannot be.

    decoding    the decoders with their settings and the shared ones; greedy always runs, as the baseline
    sizes       batch sizes;   ways  of WAYS
    ignore_eos  go on behind the end of the text, so that all requests are of one length
    cache_mb, prefill_chunk   bounds on a batch, None for none; label, range and help come from the metadata
    """

    decoding: Settings
    sizes: tuple[int, ...] = SIZES
    ways: tuple[str, ...] = tuple(WAYS)
    ignore_eos: bool = True
    cache_mb: float | None = setting(
        None,
        "memory budget: MB of cache that all requests together may take; one waits until what it can need fits in; for ways that pad nothing",
        low=0.01, high=1_000_000.0, choices=(None,),
    )  # fmt: skip
    prefill_chunk: int | None = setting(
        None, "tokens of a prompt in one pass at most; the rest follows beside the decoding of others", low=1, high=1_000_000, choices=(None,)
    )  # fmt: skip

    def __post_init__(self):
        for field in bounds():
            check("batch", field, getattr(self, field.name))
        for size in self.sizes:
            if not is_whole(size) or not 1 <= size <= LARGEST_BATCH:
                raise InputError(f"A batch size must be a whole number from 1 to {LARGEST_BATCH}, not {size!r}.")
        for way in self.ways:
            if way not in WAYS:
                raise InputError(f"There is no way {way!r} to lay out a batch: {nearest(str(way), WAYS)}")
        if not self.sizes or not self.ways:
            raise InputError("No batch size or no way is chosen; choose at least one of each.")
        padded = [WAYS[w].label for w in self.ways if WAYS[w].padding != "none"]
        if self.cache_mb is not None and max(self.sizes) > 1 and padded:
            raise InputError(
                f"A memory budget goes only with ways that pad nothing: leave out {', '.join(padded)}, or leave the budget empty."
            )

    @property
    def methods(self) -> list[Method]:
        return [m for m in self.decoding.methods if m.name != BASELINE]

    @property
    def bounded(self) -> dict[str, int | None]:
        """The bounds as options of `decoders.stream`."""
        most = None if self.cache_mb is None else round(self.cache_mb * MEGABYTE)
        return {"max_cache_bytes": most, "prefill_chunk": self.prefill_chunk}

    def reads_prompts_apart(self, size: int, way: str) -> bool:
        """Whether a batch reads all its prompts in its first round, so that their time can be told from that of decoding."""
        return WAYS[way].static and (size == 1 or self.cache_mb is self.prefill_chunk is None)

    def to_json(self) -> dict[str, Any]:
        own = {"sizes": list(self.sizes), "ways": list(self.ways), "ignore_eos": self.ignore_eos}
        return {**self.decoding.to_json(), **own, **{f.name: getattr(self, f.name) for f in bounds()}}


def bounds() -> list[dataclasses.Field]:
    """The fields that bound a batch."""
    return [f for f in dataclasses.fields(BatchSettings) if f.metadata]


@dataclass(frozen=True, slots=True)
class Job:
    """One cell to be measured."""

    method: Method
    size: int
    way: str
    repeat: int


def plan(settings: BatchSettings) -> list[Job]:
    """The cells in the order they are measured: what is compared runs close together, so that a change of the machine hits all of it."""
    jobs = []
    for repeat in range(settings.decoding.repeats):
        for size in sorted(set(settings.sizes)):
            ways = ways_at(size, settings.ways)
            jobs += [Job(catalog[BASELINE](), size, way, repeat) for way in dict.fromkeys(map(baseline_way, ways))]
            jobs += [Job(method, size, way, repeat) for method in settings.methods for way in ways]
    return jobs
