"""Cells of engines whose rows no server gave."""

from workbench.experiments.engine_cells import EngineCell
from workbench.experiments.rows import Kept, Row
from workbench.runs.database import NEXT_TIMING
from workbench.runs.record import Result, Sample
from workbench.runs.trace import Energy

UNMETERED = Energy(None, "not measured: no meter")


def load(arrivals, count=3, energy=UNMETERED, flag="", **metrics) -> Result:
    """A load whose requests got their pieces at these seconds."""
    samples = [Sample(i, 0, "", arrivals=at, count=count) for i, at in enumerate(arrivals)]
    seconds = metrics.pop("seconds", None) or max(at[-1] for at in arrivals)
    known = {
        "new_tokens": count * len(samples), "seconds": seconds, "joules": energy.joules, **metrics,
    }  # fmt: skip
    settings = {"flag": flag} if flag else {}
    return Result("engine:fast", 0, 0, known, energy, samples, settings=settings)


def kept(*loads: Result, length: int | None = None, size: int = 1, part: str = "fast") -> Kept:
    """A cell with a timing for each load."""
    cell = EngineCell("fast", "stories", size, length, (), 8, 1.0, 0)
    rows = {NEXT_TIMING * i: Row("", NEXT_TIMING * i, each) for i, each in enumerate(loads)}
    name = f"{length}-{size}"
    return Kept(part, name, name, name, len(loads), cell.to_json(), rows)
