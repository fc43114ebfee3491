"""What speculation gains when several requests share passes: by measurement, and by a model.

A round's cost is the seconds of a round of speculative decoding over those of a step of greedy
decoding, both of the same number of requests. The tokens of a round do not depend on the load.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from decoders import Method, catalog
from workbench.experiments.figures import Interval
from workbench.kinds.advice.study import LENGTHS, TIMED_LENGTHS, Advice
from workbench.kinds.advice.timings import Findings, Line, between
from workbench.runs.record import Result, Run
from workbench.studies.schemes import BASELINE
from workbench.theory.roofline import Roof, Size, Sizes

Costs = Mapping[int, float]  # of a round over a step, by draft length
MOST_ASKED = 1024  # the largest load that the model is asked about
HALF = 2  # bytes of a number in 16 bits


@dataclass(frozen=True, slots=True)
class Gain:
    """What speculation gains at a load with its best draft length.

    Attributes:
        length: the draft length
        times: the speed over greedy's at the same load; the bounds are the least and the greatest
            timing, or those of the 95% interval for one request
    """

    length: int
    times: Interval


@dataclass(frozen=True)
class Loads:
    """The findings on load.

    Attributes:
        measured: by number of requests at once, what was measured
        modelled: the same by the model, with this machine's bandwidth and operations
        errors: the model's cost of a round over the measured one, minus 1, by load and draft length
        roof: what this machine was measured to do
        gpu_roof: the GPU that was asked about; None if none was
        gpu: by number of requests at once, the model's answer for it; {} if there is none
        failed: by number of requests at once, why it could not be measured
    """

    measured: Mapping[int, Gain]
    modelled: Mapping[int, Gain]
    errors: Mapping[tuple[int, int], float]
    roof: Roof
    gpu_roof: Roof | None = None
    gpu: Mapping[int, Gain] = field(default_factory=dict)
    failed: Mapping[int, str] = field(default_factory=dict)

    @property
    def mean_error(self) -> float:
        return fmean(map(abs, self.errors.values()))

    @property
    def worst_error(self) -> float:
        return max(map(abs, self.errors.values()))


def under_load(run: Run, found: Findings) -> Loads | None:
    """The findings on load; None if the run measured none.

    Args:
        run: the run
        found: its findings on single requests
    """
    study = Advice.from_json(run.study)
    if not study.loads or "bytes_per_second" not in run.environment:
        return None
    tokens = {_length(line.method): float(line.tokens) for line in speculating(found)}
    alone = {n: found.costs.round(n) / found.costs.step for n in TIMED_LENGTHS}
    timed: dict[int, list[Costs]] = {1: [alone], **timings(run)}
    measured = {
        # Costs between the lengths that were timed are interpolated; none is beyond them.
        load: best(
            {n: [tokens[n] / between(c, n) for c in each] for n in LENGTHS if n <= _longest(each)}
        )
        for load, each in timed.items()
        if load in study.loads
    }
    if 1 in measured:
        measured[1] = _alone(found)
    roof = Roof(run.environment["bytes_per_second"], run.environment["operations_per_second"])
    sizes = sizes_of(run)
    gpu, dtype = gpu_of(study), run.environment["dtype"]
    asked = [2**i for i in range(MOST_ASKED.bit_length()) if 2**i <= MOST_ASKED]
    return Loads(
        measured,
        {load: modelled(tokens, sizes, roof, load) for load in study.loads},
        errors(sizes, roof, timed),
        roof,
        gpu,
        {load: modelled(tokens, halved(sizes, dtype), gpu, load) for load in asked} if gpu else {},
        failures(run),
    )


def timings(run: Run) -> dict[int, list[Costs]]:
    """By number of requests at once, the costs of rounds that were timed, one for each prompt."""
    steps: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for result in run.results:
        if result.batch_size > 1 and (seconds := _of_round(result)):
            length = _length(catalog[result.decoder](**result.settings))
            steps[result.batch_size, result.repeat][length] = seconds
    found: dict[int, list[Costs]] = defaultdict(list)
    for (load, _), each in sorted(steps.items()):
        step = each.pop(0, None)
        if step and len(each) > 1:
            found[load].append({n: seconds / step for n, seconds in each.items()})
    return dict(found)


def _length(method: Method) -> int:
    """Draft tokens of a round; 0 of greedy decoding."""
    return getattr(method, "draft_length", 0)


def speculating(found: Findings) -> list[Line]:
    """The findings on speculative decoding, the fastest draft length first."""
    return [line for line in found.lines if line.method.name == "speculative"]


def _of_round(result: Result) -> float | None:
    """Seconds of a round after the first, which also reads the prompt; None if there is none."""
    seconds, rounds = (result.metrics.get(name) for name in ("decode_seconds", "passes"))
    return None if result.errors or not (seconds and rounds) else float(seconds) / float(rounds)


def _longest(timed: Sequence[Costs]) -> int:
    """The longest draft that every timing has."""
    return min(max(costs) for costs in timed)


def best(gains: Mapping[int, Sequence[float]]) -> Gain:
    """The draft length that gains most on average.

    Args:
        gains: for each draft length the gain of each timing
    """
    length = max(gains, key=lambda n: fmean(gains[n]))
    each = gains[length]
    return Gain(length, Interval(fmean(each), min(each), max(each)))


def _alone(found: Findings) -> Gain:
    """The best draft length for one request, as the advice on single requests has it."""
    line = speculating(found)[0]
    return Gain(_length(line.method), line.best)


def modelled(tokens: Mapping[int, float], sizes: Sizes, roof: Roof, load: int) -> Gain:
    """The best draft length and its gain by the model."""
    return best({n: [tokens[n] / sizes.ratio(roof, load, n)] for n in LENGTHS})


def errors(
    sizes: Sizes, roof: Roof, timed: Mapping[int, list[Costs]]
) -> dict[tuple[int, int], float]:
    """The model's cost of a round over the measured one, minus 1, by load and draft length."""
    return {
        (load, n): sizes.ratio(roof, load, n) / fmean(costs[n] for costs in each) - 1
        for load, each in timed.items()
        for n in sorted(set.intersection(*(set(costs) for costs in each)))
    }


def sizes_of(run: Run) -> Sizes:
    """The sizes of the pair as this machine read it, with the caches of the run's texts."""
    target, draft = (_weights(run.environment[role]) for role in ("target", "draft"))
    alone = [r for r in run.results if r.decoder == BASELINE and r.batch_size == 1]
    caches = [_cache(result.metrics, result.alone.prompt_length) for result in alone]
    return Sizes(Size(target.weights, target.bytes, fmean(caches)), draft)


def _cache(metrics: Mapping[str, Any], prompt: int) -> float:
    """Bytes of keys and values that a pass reads of a text that grows, on average."""
    new = metrics["new_tokens"]
    return metrics["peak_cache_bytes"] * (prompt + new / 2) / (prompt + new)


def _weights(model: Mapping[str, float]) -> Size:
    """The weights that a pass of a model of the environment multiplies with, and their bytes.

    Where the engine has a copy of them, it reads that.
    """
    used = model["pass_bytes"] / model["bytes"]
    return Size(model["parameters"] * used, model.get("copied_bytes") or model["pass_bytes"])


def halved(sizes: Sizes, dtype: str) -> Sizes:
    """The same pair in 16 bits, as GPUs serve it.

    Args:
        sizes: the sizes here, whose caches are in `dtype`
        dtype: such as "float32"
    """
    scale = HALF / (int(dtype[-2:]) / 8)
    target, draft = (
        Size(size.weights, HALF * size.weights, scale * size.cache)
        for size in (sizes.target, sizes.draft)
    )
    return Sizes(target, draft)


def gpu_of(study: Advice) -> Roof | None:
    """The GPU that is asked about."""
    if study.gpu_bandwidth is None or study.gpu_tflops is None:
        return None
    return Roof(1e9 * study.gpu_bandwidth, 1e12 * study.gpu_tflops)


def failures(run: Run) -> dict[int, str]:
    """By number of requests at once, the first failure."""
    failed = [r for r in run.results if r.batch_size > 1 and r.errors]
    return {r.batch_size: r.errors[0] for r in reversed(failed)}
