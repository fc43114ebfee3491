"""What a batch experiment measures: its settings, and the cells they come to."""

from dataclasses import dataclass
from typing import Any

from decoders import InputError, Method, catalog
from decoders.inputs import is_whole
from decoders.settings import nearest
from workbench.batch_records import BASELINE, WAYS, baseline_way, ways_at
from workbench.settings import Settings

SIZES = (1, 2, 4, 8, 16, 24)  # of the table
LARGEST_BATCH = 1024


@dataclass(frozen=True)
class BatchSettings:
    """What to measure. Raises InputError for what cannot be.

    decoding    the decoders with their settings and the shared ones; greedy always runs, as the baseline
    sizes       batch sizes;   ways  of WAYS
    ignore_eos  go on behind the end of the text, so that all requests are of one length
    """

    decoding: Settings
    sizes: tuple[int, ...] = SIZES
    ways: tuple[str, ...] = tuple(WAYS)
    ignore_eos: bool = True

    def __post_init__(self):
        for size in self.sizes:
            if not is_whole(size) or not 1 <= size <= LARGEST_BATCH:
                raise InputError(f"A batch size must be a whole number from 1 to {LARGEST_BATCH}, not {size!r}.")
        for way in self.ways:
            if way not in WAYS:
                raise InputError(f"There is no way {way!r} to lay out a batch: {nearest(str(way), WAYS)}")
        if not self.sizes or not self.ways:
            raise InputError("No batch size or no way is chosen; choose at least one of each.")

    @property
    def methods(self) -> list[Method]:
        return [m for m in self.decoding.methods if m.name != BASELINE]

    def to_json(self) -> dict[str, Any]:
        own = {"sizes": list(self.sizes), "ways": list(self.ways), "ignore_eos": self.ignore_eos}
        return {**self.decoding.to_json(), **own}


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
