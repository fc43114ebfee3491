"""A further lap of a job, merged into its result."""

from dataclasses import replace
from typing import Any

from workbench.measuring.work import Measured
from workbench.runs import laps
from workbench.runs.record import Result
from workbench.runs.timing import Lap
from workbench.studies.study import Job


def compared(first: Measured, other: Measured, job: Job, temperature: float) -> Lap:
    """The other's lap, compared with the first.

    A decoder that watches the clock may draft differently each time, and then draws other tokens of
    the same law.
    """
    same = dict(first.outputs) == dict(other.outputs)
    watches_clock = getattr(job.method, "draft_length", None) == "auto" and temperature > 0
    return replace(
        other.lap, same_rounds=first.rounds == other.rounds, same_tokens=same or watches_clock
    )


def with_lap(result: Result, lap: Lap) -> Result:
    """The result with one lap more; its seconds and its energy are estimated from all of them."""
    all_laps = [*result.laps, lap]
    spent = laps.energy(all_laps)
    metrics: dict[str, Any] = dict(result.metrics)
    metrics |= {"seconds": laps.whole(all_laps), "decode_seconds": laps.after_first(all_laps)}
    metrics |= {"joules": spent.joules, "energy_source": spent.source}
    if metrics["seconds"] and metrics.get("new_tokens") is not None:
        metrics["tokens_per_second"] = metrics["new_tokens"] / metrics["seconds"]
    return replace(result, laps=all_laps, metrics=metrics, energy=spent)
