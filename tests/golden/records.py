"""Runs as JSON without what a clock or a meter measured, and where two of them differ."""

import math
from collections.abc import Mapping
from typing import Any

from tests.golden.decoding import digest

# of a run that is made anew: when, where and at what speed; numbers of nodes and of near-ties
MEASURED = (
    "created", "environment", "laps", "energy", "joules", "energy_source", "x_greedy", "run",
    "node", "nodes", "parent", "alternatives",
)  # fmt: skip
OF_A_RUN = ("id", "kind", "title", "created", "study", "cancelled")
OF_A_RESULT = (
    "decoder", "repeat", "seed", "batch_size", "scheme", "metrics", "error", "agreement",
)  # fmt: skip


def unclocked(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run without its id and date, and without what a clock or a meter measured."""
    return _unclocked({name: value for name, value in run.items() if name != "id"})


def _unclocked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _unclocked(each)
            for name, each in value.items()
            if name not in MEASURED and "second" not in name
        }
    if isinstance(value, (list, tuple)):
        return [_unclocked(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def opened(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored run holds, with digests for texts and traces."""
    results = []
    for result in run["results"]:
        samples = [
            [sample["prompt"], sample["prompt_length"], digest(sample["text"]),
             digest([[token["id"], token["fate"]] for token in sample["tokens"]]),
             digest(sample["gained"]), sample["finished"], sample["error"]]
            for sample in result["samples"]
        ]  # fmt: skip
        results.append({name: result[name] for name in OF_A_RESULT} | {"samples": samples})
    return {name: run[name] for name in OF_A_RUN} | {"results": results}


def missing(before: Any, now: Any, where: str = "", tolerance: float = 1e-4) -> str | None:
    """The first place at which something that was there is missing or another.

    More fields of an object are no difference: later versions tell more.
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name, value in before.items():
            if name not in now:
                return f"{where}.{name} is missing"
            if found := missing(value, now[name], f"{where}.{name}", tolerance):
                return found
        return None
    if isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            return f"{where} had {len(before)} entries and has {len(now)}"
        for place, (old, new) in enumerate(zip(before, now, strict=True)):
            if found := missing(old, new, f"{where}[{place}]", tolerance):
                return found
        return None
    numbers = all(isinstance(each, (int, float)) for each in (before, now))
    if numbers and float in (type(before), type(now)):
        same = math.isclose(before, now, rel_tol=tolerance, abs_tol=tolerance)
    else:
        same = before == now
    return None if same else f"{where} was {before!r} and is {now!r}"
