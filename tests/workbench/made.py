"""Runs made by hand, whose figures are plain."""

from dataclasses import replace
from typing import Any

from workbench.runs.record import Agreement, Energy, Lap, Result, Run, Sample
from workbench.studies.study import SCHEMES

SPEEDS = {
    "greedy": {"unpadded": 80.0, "dynamic": 120.0},
    "lookup": {"vanilla": 100.0, "unpadded_kv": 120.0, "unpadded_inputs": 150.0, "unpadded": 200.0,
        "dynamic": 240.0},
}  # fmt: skip
GAINED = {"greedy": [[1, 1, 1]] * 4, "lookup": [[1, 1], [4, 2], [2, 2], [3, 5]]}
UNMEASURED = Energy(None, "not measured: made by hand")


def made_result(decoder: str, size: int, scheme: str, speed: float, **changes: Any) -> Result:
    """100 tokens at `speed`, 80 of them in the half of the time that is not spent on prompts.
    `changes` are fields and metrics."""
    static, vanilla = SCHEMES[scheme].static, scheme == "vanilla"
    metrics = {
        "seconds": 100 / speed, "new_tokens": 100, "tokens_per_second": speed,
        "decode_seconds": 50 / speed if static else None, "decode_tokens": 80 if static else None,
        "passes": 20 if static else None, "fed_tokens": 60, "padded_tokens": 20 if vanilla else 0,
        "padded_rows": 7 if vanilla else 0, "padding_ratio": 0.25 if vanilla else None,
        "at_once": size, "peak_cache_bytes": 3_000_000,
    }  # fmt: skip
    metrics = {name: changes.pop(name, value) for name, value in metrics.items()}
    agreement = Agreement("greedy", 4, changes.pop("differing", 0))
    samples = [Sample(i, 3) for i in range(4)]
    found = Result(
        decoder, changes.pop("repeat", 0), 0, metrics, UNMEASURED, samples,
        [Lap(100 / speed, [], UNMEASURED)], size, scheme, agreement,
    )  # fmt: skip
    return replace(found, **changes)


def made_batch() -> Run:
    """Greedy and lookup over four prompts, alone and in batches of four."""
    results = []
    for decoder, speed in (("greedy", 50.0), ("lookup", 90.0)):
        samples = [Sample(i, 3, gained=g) for i, g in enumerate(GAINED[decoder])]
        results.append(made_result(decoder, 1, "unpadded", speed, samples=samples))
    for decoder, speeds in SPEEDS.items():
        results += [made_result(decoder, 4, scheme, speed) for scheme, speed in speeds.items()]
    settings = {
        "max_new_tokens": 64, "temperature": 0.0, "seed": 0, "repeats": 1, "decoders": ["lookup"],
        "lookup": {"match": 2}, "sizes": [1, 4], "schemes": list(SCHEMES), "ignore_eos": True,
    }  # fmt: skip
    study = {"prompts": {"name": "few", "count": 4, "texts": None}, "settings": settings}
    models = {"target": {"name": "a/big"}, "draft": {"name": "a/small"}}
    where = {"device": "cpu", "dtype": "float32", **models}
    return Run("abc", "2026-11-20T00:00:00+00:00", "batch", "4 few", study, where, results)


def with_results(run: Run, results: list[Result]) -> Run:
    return replace(run, results=results)
